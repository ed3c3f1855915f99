#!/bin/sh
# present.sh TOOL: succeeds when TOOL is here. Whatever asks for a tool, asks here, so that what is called missing and what
# is installed are the same things.
set -u
case $1 in
# Both the race detector and spin's verifiers need a C compiler: the one that Go would call.
cc) command -v "$(go env CC 2>/dev/null || echo gcc)" >/dev/null 2>&1 ;;
# The server's programs, where internal/testdb looks for them: Debian keeps them out of PATH.
postgres)
	command -v postgres >/dev/null 2>&1 && exit 0
	[ -x "$(pg_config --bindir 2>/dev/null)/postgres" ] && exit 0
	for program in /usr/lib/postgresql/*/bin/postgres; do
		[ -x "$program" ] && exit 0
	done
	exit 1
	;;
pgbouncer) command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] ;;
# The interpreter that PATH names may be another than the one that Debian's modules are for.
psycopg2)
	for python in python3 /usr/bin/python3; do
		"$python" -c 'import psycopg2' >/dev/null 2>&1 && exit 0
	done
	exit 1
	;;
ruby-pg)
	for ruby in ruby /usr/bin/ruby; do
		"$ruby" -e 'require "pg"' >/dev/null 2>&1 && exit 0
	done
	exit 1
	;;
*) command -v "$1" >/dev/null 2>&1 ;;
esac
