#!/bin/sh
# Emits an op for each file below the current folder: those that git tracks, or all where there is no git.
set -eu

# Tracked files only, or else everything but what builds and runs leave behind: a run must not see its own traces.
if ! git -c core.quotePath=false ls-files >"$LEASEHOLD_ARTIFACTS/files.txt" 2>/dev/null || ! [ -s "$LEASEHOLD_ARTIFACTS/files.txt" ]; then
    find . -type f ! -path './.git/*' ! -path './target/*' ! -path './.leasehold/*' | sed 's,^\./,,' | LC_ALL=C sort \
        >"$LEASEHOLD_ARTIFACTS/files.txt"
fi

while IFS= read -r file; do
    # Links are skipped, and files that were removed but are still tracked.
    if [ ! -f "$file" ] || [ -L "$file" ]; then
        continue
    fi
    # git puts names with unusual characters in quotes; there are none here, and a wrong digest would be worse than none.
    case $file in
    *[\"\\]*)
        echo "cannot digest a file with quotes or backslashes in its name: $file" >&2
        exit 65
        ;;
    esac
    printf '{"id":"file:%s","kind":"shell","queue":"digest","command":["sh","examples/digest-tree/digest.sh","%s"],"before":["report"]}\n' \
        "$file" "$file"
done <"$LEASEHOLD_ARTIFACTS/files.txt" >"$LEASEHOLD_EMIT"

echo "$(grep -c . "$LEASEHOLD_EMIT") files"
