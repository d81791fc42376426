#!/bin/sh
# Prints one line: the SHA-256, the bytes, the lines and the name of the file that is named as argument.
set -eu

if command -v sha256sum >/dev/null 2>&1; then
    digest=$(sha256sum <"$1")
else
    digest=$(shasum -a 256 <"$1")
fi
bytes=$(wc -c <"$1")
lines=$(wc -l <"$1")
# Unquoted, so that the padding of some systems' wc goes away.
echo ${digest%% *} $bytes $lines "$1"
