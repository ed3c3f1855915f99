package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is what the commands share. One app serves one command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            environment
	storeFlag      string
	opener         func(context.Context, location, openOptions) (store, error)
	understood     bool // the command line was; what fails from then on is no mistake in it
}

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := guard(args); ok {
		return code
	}
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, opener: openStore,
		env: environment{getenv: os.Getenv, uid: os.Getuid()}}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.understood {
		err = &usageError{err.Error() + "; `tenure help` lists the commands"}
	}
	var coded *codedError
	if err != nil && !errors.As(err, &coded) {
		a.say("%v", err)
	}
	return exitCode(err)
}

// say writes one line to standard error: what a person reads last must not be the second half of a message.
func (a *app) say(format string, args ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	fmt.Fprintln(a.stderr, "tenure: "+strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// commands are the subcommands, in the order of the help. To add one, write a function that returns a *cobra.Command in
// a file of its own and name it here. Then:
//   - RunE returns errors; it does not print them and does not exit. usagef makes exit 64, codedError any other
//     code (for a command that has printed its own last line), and errors.go maps the rest.
//   - a.open gives the store that --store or TENURE_STORE names; the caller shuts it down.
//   - Output is written to a.stdout, remarks to a.stderr. JSON carries tokens as strings and durations as *_ms.
//   - Short, Long and Example are documentation: docs/cli.md is made of them by
//     `go test ./cmd/tenure -run TestDocs -update`, and a test fails when it is old or an example is missing.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(),
		a.leaseCommand(),
		a.opCommand(),
		a.holdCommand(),
		a.outboxCommand(),
		a.migrateCommand(),
		a.epochCommand(),
		a.authorityCommand(),
		a.protectCommand(),
		a.serveCommand(),
		a.upstreamCommand(),
		a.drillCommand(),
		a.tuneCommand(),
		a.versionCommand(),
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tenure",
		Short: "one recognised owner for a piece of work",
		Long: `Tenure gives work one recognised owner. A lease names the owner, for as long as it is renewed; its token,
which rises with every owner, lets a resource refuse the late write of a former one.

The store is named by --store or TENURE_STORE. Known are
` + schemes + `.
"sqlite:" alone is $XDG_STATE_HOME/tenure/tenure.db; without that variable ~/.local/state/tenure/tenure.db,
for root /var/lib/tenure/tenure.db. tenure run, migrate and drill make a missing store, in
folders readable by this user alone; the other commands say that there is none.

On PostgreSQL tenure migrate installs the schema, and no other command does. What the URL leaves out is taken from PGHOST,
PGUSER, PGPASSWORD, PGSSLMODE and the like, and from ~/.pgpass; postgresql:// is the same. A password on the command line is
visible to other users of the machine, so leave it to these or to TENURE_STORE. It is never printed.

Exit codes: 0 success; 1 refused or failed; 64 the command line makes no sense; 75 not acquired, or not decided yet; 77 the
store was not reached, or its schema, the role's rights or the connection's settings do not allow the call; 78 uncertain:
what was asked about may have had its effect, and nobody knows. tenure run has more.
With --json, tokens are strings and durations are numbers ending in _ms.`,
		Example: `  tenure run nightly-report --wait 1m -- ./report.sh
  tenure lease ls
  tenure lease revoke nightly-report --token 7 --reason "host is gone"`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.NoArgs,
		RunE:              needsCommand,
		PersistentPreRunE: func(*cobra.Command, []string) error { a.understood = true; return nil },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.PersistentFlags().StringVar(&a.storeFlag, "store", "", "`URL` of the store; default: TENURE_STORE, else sqlite:")
	root.AddCommand(a.commands()...)
	return root
}

// needsCommand is for words that only group others.
func needsCommand(cmd *cobra.Command, _ []string) error {
	return usagef("%q needs a command after it; `%s --help` lists them", cmd.CommandPath(), cmd.CommandPath())
}

// open opens the store that the command line or the environment names, and says so when neither does.
// The caller ends it with a.close.
func (a *app) open(ctx context.Context, o openOptions) (store, location, error) {
	l, err := a.env.locate(a.storeFlag)
	if err != nil {
		return nil, l, err
	}
	if l.assumed {
		a.say("%s", l.notice())
	}
	s, err := a.opener(ctx, l, o)
	return s, l, err
}

// closeWait bounds a shutdown: what the store could not do by then is left to the end of the process.
const closeWait = time.Second

func (a *app) close(ctx context.Context, s store) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		a.say("closing the store: %v; nothing that was answered is lost", err)
	}
}
