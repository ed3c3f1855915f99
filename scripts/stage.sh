#!/bin/sh
# stage.sh NAME COMMAND...: runs COMMAND between two lines that name it, and says how long it took.
# Its exit status is the command's.
set -u
name=$1
shift
printf '== %s\n' "$name"
start=$(date +%s)
"$@"
rc=$?
took=$(($(date +%s) - start))
minutes=$(awk -v s="$took" 'BEGIN { printf "%.1f", s / 60 }')
if [ "$rc" -eq 0 ]; then
	printf '== %s: ok, %s min\n' "$name" "$minutes"
else
	printf '== %s: FAILED (exit %s), %s min\n' "$name" "$rc" "$minutes" >&2
fi
exit "$rc"
