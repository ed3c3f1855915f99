#!/bin/sh
# run.sh: the demonstration. It compiles the command, stops a worker between its last ownership check
# and its write, lets a successor write, wakes the stopped one, and counts what the resource accepted:
# first with enforcement off, then with it on. Nothing is left behind, nothing else is touched.
set -u
cd "$(dirname "$0")/.." || exit 1
rounds=${ROUNDS:-5}

# Said before anything else: a first build compiles SQLite, and silence looks like a fault.
echo "compiling bin/tenure (the first time it takes a minute or so, SQLite is large) ..."
mkdir -p bin
go build -o bin/tenure ./cmd/tenure || { echo "run: go build failed; its message stands above" >&2; exit 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/tenure-run.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# play NAME [FLAG]: runs the drill with a store of its own and keeps its last line, the report.
play() {
	name=$1
	shift
	printf '\n%s: %s rounds of a worker stopped before its write ...\n' "$name" "$rounds"
	bin/tenure drill pause --store "sqlite:$dir/$name.db" --rounds "$rounds" --json "$@" >"$dir/$name.out"
	rc=$?
	tail -n 1 "$dir/$name.out"
	if [ "$rc" -ne 0 ]; then
		printf 'run: the %s drill failed (exit %s); run it again with: bin/tenure drill pause --store sqlite:/tmp/drill.db --rounds %s %s\n' \
			"$name" "$rc" "$rounds" "$*" >&2
		exit 1
	fi
}

# number NAME FIELD: a number of the report, read without any JSON tool.
number() {
	tail -n 1 "$dir/$1.out" | sed -n "s/.*\"$2\"[[:space:]]*:[[:space:]]*\\([0-9][0-9]*\\).*/\\1/p"
}

play unfenced --unfenced
play fenced

echo
printf 'unfenced: %s of %s late writes accepted\n' "$(number unfenced accepted_stale_writes)" "$(number unfenced late_writes_sent)"
printf 'fenced:   %s of %s late writes accepted\n' "$(number fenced accepted_stale_writes)" "$(number fenced late_writes_sent)"
echo "next: in two terminals, bin/tenure run nightly --wait 1m -- sh -c 'echo token \$TENURE_TOKEN; sleep 20' ; then docs/guarantees.md"
