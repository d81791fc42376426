#!/bin/sh
# Writes the report from what the files' ops printed: sorted by name, so that the order in which they ran does not show.
set -eu

mkdir -p .leasehold
report=.leasehold/digest-tree-report.txt

# A line of the results is {"op":"file:NAME","output":{"stdout":"DIGEST BYTES LINES NAME\n",…}}; only those of files count.
sed -n 's/^{"op":"file:.*"stdout":"\([0-9a-f]\{64\} [0-9]* [0-9]* [^"]*\)\\n".*$/\1/p' "$LEASEHOLD_RESULTS" |
    LC_ALL=C sort -k 4 >"$report.new"

expected=$(grep -c '^{"op":"file:' "$LEASEHOLD_RESULTS")
found=$(grep -c . "$report.new")
if [ "$expected" -ne "$found" ]; then
    echo "of $expected files only $found gave a line that can be read" >&2
    exit 65
fi

awk '{ bytes += $2; lines += $3 } END { printf "%d files, %.0f bytes, %.0f lines\n", NR, bytes, lines }' "$report.new" >>"$report.new"
mv "$report.new" "$report"
cp "$report" "$LEASEHOLD_ARTIFACTS/digest-tree-report.txt"
echo "the report is in $report: $(tail -n 1 "$report")"
