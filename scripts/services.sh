#!/bin/sh
# services.sh: installs what the tests and checks need beside Go: a C compiler (for the race detector and for spin's
# verifiers), spin, the programs of PostgreSQL and PgBouncer with a Python and a Ruby driver, and Node for the JavaScript client. No service runs
# afterwards that did not run before: tests start servers of their own. Run it as often as you like.
set -u
cd "$(dirname "$0")/.." || exit 1

packages=""
want() { # TOOL PACKAGE...: the packages are installed if the tool is missing
	scripts/present.sh "$1" && return
	shift
	packages="$packages $*"
}
want cc gcc libc6-dev
want spin spin
want postgres postgresql
want pgbouncer pgbouncer
want psycopg2 python3-psycopg2
want ruby-pg ruby ruby-pg
want node nodejs

if [ -z "$packages" ]; then
	echo "services: everything is here (C compiler, spin, PostgreSQL, PgBouncer, psycopg2, ruby-pg, Node)"
	exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
	printf 'services: this script knows Debian only (no apt-get here). Install by hand:%s\n' "$packages" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	printf 'services: installing%s needs root. Run: sudo make services\n' "$packages" >&2
	exit 1
fi

# Debian's packages make a database cluster and start what they bring. Two files hold them back while they are
# installed: one says that no cluster is wanted, the other that nothing may be started.
made=""
hold() { # FILE MODE TEXT: writes a file that is not there yet, to be removed at the end
	[ -e "$1" ] && return
	mkdir -p "$(dirname "$1")" && printf '%s\n' "$3" >"$1" && chmod "$2" "$1" && made="$made $1"
}
# shellcheck disable=SC2086 # the list is meant to be split
trap 'rm -f $made' EXIT
trap 'exit 1' HUP INT TERM
case " $packages " in
*" postgresql "*) hold /etc/postgresql-common/createcluster.d/tenure.conf 644 "create_main_cluster = false" ;;
esac
hold /usr/sbin/policy-rc.d 755 "#!/bin/sh
exit 101"

export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is meant to be split
apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages || {
	printf 'services: apt-get could not install%s; its message stands above\n' "$packages" >&2
	exit 1
}
# Not at the next start of the machine either. A PgBouncer that was here before is left as it was.
case " $packages " in
*" pgbouncer "*)
	command -v update-rc.d >/dev/null 2>&1 && update-rc.d pgbouncer disable >/dev/null 2>&1
	command -v systemctl >/dev/null 2>&1 && systemctl disable pgbouncer >/dev/null 2>&1
	;;
esac
printf 'services: installed%s\n' "$packages"
