package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// guard is a shell that waits at a pipe whose other end only this process holds. When the pipe closes, because
// close was called or because this process was killed, it stops the processes it was told of and removes the
// folder. There is one path for both, so the one that nobody watches is tried by every test.
type guard struct {
	dir string
	in  io.WriteCloser
	cmd *exec.Cmd
}

// guardScript gets the folder as $1 and lines "add PID" and "del PID". It asks for an immediate shutdown first:
// a killed postmaster leaves a System V segment behind, which nothing else would remove.
const guardScript = `
trap '' INT TERM HUP
pids=
while read -r verb pid; do
	case $verb in
	add) pids="$pids $pid" ;;
	del)
		rest=
		for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done
		pids=$rest
		;;
	esac
done
exec 2>/dev/null
children() {
	if [ -r /proc/self/stat ]; then
		for stat in /proc/[0-9]*/stat; do
			read -r child name state parent rest <"$stat" && [ "$parent" = "$1" ] && echo "$child"
		done
	else
		ps -A -o pid=,ppid= | while read -r child parent; do [ "$parent" = "$1" ] && echo "$child"; done
	fi
}
alive() {
	for p in $pids; do
		kill -0 "$p" && return 0
	done
	return 1
}
for p in $pids; do
	kill -QUIT "$p"
	kill -CONT $(children "$p") "$p"
done
tries=0
while alive && [ "$tries" -lt 200 ]; do
	sleep 0.03
	tries=$((tries + 1))
done
for p in $pids; do
	kill -STOP "$p"
	kill -KILL $(children "$p") "$p"
done
if [ -r "$1/data/postmaster.pid" ]; then
	segment=$(sed -n '7s/.* //p' "$1/data/postmaster.pid")
	[ -n "$segment" ] && ipcrm -m "$segment"
fi
cd /
rm -rf "$1"
[ ! -e "$1" ]
`

func startGuard(user owner, dir string) (*guard, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	// Its life is not a call's, so no context ends it; and it keeps this process's user, who may remove the folder.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "tenure-guard", dir)
	cmd.Stdin = out
	cmd.SysProcAttr = user.ownSession()
	err = cmd.Start()
	_ = out.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: %w", err), in.Close())
	}
	return &guard{dir: dir, in: in, cmd: cmd}, nil
}

func (g *guard) add(pid int) error {
	if _, err := fmt.Fprintf(g.in, "add %d\n", pid); err != nil {
		return fmt.Errorf("pgserver: the guard of %s is gone: %w", g.dir, err)
	}
	return nil
}

func (g *guard) forget(pid int) {
	_, _ = fmt.Fprintf(g.in, "del %d\n", pid) // the pipe may be closed: then the guard is about to look for itself
}

// close has the guard stop what still runs and remove the folder, and waits until it has.
func (g *guard) close() error {
	closed := g.in.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("pgserver: %s could not be removed: %w", g.dir, err)
	}
	return closed
}
