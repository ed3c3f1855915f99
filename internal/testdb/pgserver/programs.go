package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// host is what this machine offers: where PostgreSQL's programs are, and as whom to run them.
type host struct {
	bin  string // folder of postgres, initdb and pg_basebackup of one version
	user owner
}

// newHost looks for a whole set of programs in PATH, in the folder that pg_config names, and in Debian's
// folders, newest version first.
func newHost(ctx context.Context) (host, error) {
	var folders []string
	if program, err := exec.LookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(program); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	folders = append(folders, debianFolders()...)
	for _, folder := range folders {
		if complete(folder) {
			user, err := serverUser()
			return host{bin: folder, user: user}, err
		}
	}
	return host{}, fmt.Errorf("%w: postgres, initdb and pg_basebackup of PostgreSQL 15 or newer are not together in PATH, "+
		"nor in the folder that pg_config --bindir names, nor in /usr/lib/postgresql/VERSION/bin", ErrNotInstalled)
}

func debianFolders() []string {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return nil
	}
	version := func(folder string) int {
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		if err != nil {
			return 0
		}
		return number
	}
	slices.SortFunc(folders, func(a, b string) int { return version(b) - version(a) })
	return folders
}

func complete(folder string) bool {
	for _, name := range []string{"postgres", "initdb", "pg_basebackup"} {
		if _, err := exec.LookPath(filepath.Join(folder, name)); err != nil {
			return false
		}
	}
	return true
}

// bouncerProgram finds PgBouncer, which Debian keeps where an ordinary user's PATH does not look.
func bouncerProgram() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("%w: pgbouncer is neither in PATH nor in /usr/sbin", ErrNotInstalled)
}

// command prepares a program as the server's user, in a session of its own, so that an interrupt typed at a
// terminal does not reach it. The caller's PG* variables are kept from it: they name other servers.
func (h host) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + h.bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = h.user.attributes()
	return cmd
}

// run runs a program to its end; what it printed is in the error.
func (h host) run(ctx context.Context, dir, program string, args ...string) error {
	out, err := h.command(ctx, dir, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pgserver: %s: %w: %s", filepath.Base(program), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// folder makes a temporary folder that the server's user may write. What is durable is on a disk.
func (h host) folder(durable bool) (string, error) {
	parent := ""
	if !durable {
		parent = memoryFolder()
	}
	dir, err := os.MkdirTemp(parent, "tenure-pg-")
	if err != nil && parent != "" {
		dir, err = os.MkdirTemp("", "tenure-pg-")
	}
	if err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	if err := h.user.give(dir); err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	return dir, nil
}
