package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/drill"
)

// exitInterrupted is what a shell expects of a program that was ended by Ctrl-C.
const exitInterrupted = 130

// memoryStore is the one store that only a drill knows: it is gone when the drill ends.
const memoryStore = "memory:"

func (a *app) drillCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "provoke a stale owner on real processes, and look at the resource",
		Long: `Plays a fault against real processes and the store that --store names, and looks at the resource: which late writes did
it accept? A drill starts workers, stops, kills or cuts off the one that holds the lease, lets a successor write, and has
the former holder send its write without asking again. The resource is a few tables, made for the run and removed
afterwards, also after Ctrl-C: in the store's own file they are named tenure_drill_*, in a PostgreSQL database they are in a
schema of that name, which takes the right to CREATE in the database. Nothing else in the store is touched; the names
that were leased stay as free rows until tenure prunes them. A drill that needs several servers builds them itself.

Whether it is ok is decided by a process of its own, from what the resource holds, has logged and has answered. With
checks on, ok means that every late write was refused and no acknowledged update is lost. With --unfenced the checks are
off, and ok means that the damage is seen: every late write was accepted. A round whose late write was not sent is invalid,
and then the drill is not ok. The exit code is 0 only for ok.

The drills about payments, from lost-effect-response on, are about what has happened instead of who owns: workers charge at
a provider that the drill runs itself and that misbehaves, the store keeps the operations, and the provider's ledger is
judged. Nothing leaves the machine. Their operations are named tenure-drill/* and stay, decided, until tenure op prune.

The drills about holds, from expired-hold on, are about what is sold: sellers place holds on one seat and sell it, one of them
is stopped or killed in the middle, and a table of sales is judged, which has no key that would prevent anything. Their items
and holds are named tenure-drill/* too; the holds are over, and stay until they are pruned, the items stay.

The drills about messages, from dead-relay on, are about what arrives: relays carry messages from the store's outbox to a
consumer that the drill runs itself, one of them is stopped or killed in the middle, and the consumer's tables are judged.
Their topics and consumers are named tenure-drill/*; the messages are delivered or dead, and stay until tenure outbox prune,
the notes in the inbox until it is pruned.

While a drill runs on a file, sessions with a TTL of 0.6 to 2 s live in it, and fenced transactions of other programs on it
are bounded to a quarter of that. On PostgreSQL a drill takes up to 80 connections. docs/drills.md says what each
drill does, and what it does not show.`,
		Example: `  tenure drill list
  tenure drill pause --store sqlite: --rounds 20 --json
  tenure drill pause --store sqlite: --unfenced
  tenure drill pause --store postgres://app@127.0.0.1/shop --high-water
  tenure drill failover
  tenure drill crash-between-effect-and-record --store sqlite:
  tenure drill expired-hold --store sqlite:
  tenure drill dead-relay --store sqlite:
  tenure drill story --store memory:`,
		Args: cobra.NoArgs,
		RunE: needsCommand,
	}
	for _, s := range drill.Scenarios() {
		cmd.AddCommand(a.scenarioCommand(s))
	}
	cmd.AddCommand(a.drillListCommand(),
		a.drillPart("worker", func(ctx context.Context) error { return drill.Worker(ctx, a.stdin, a.stdout) }),
		a.drillPart("judge", func(ctx context.Context) error { return drill.Judge(ctx, a.stdin, a.stdout) }))
	return cmd
}

// drillPart is a process that a drill starts of this program. Nobody else does.
func (a *app) drillPart(name string, part func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, Args: cobra.NoArgs,
		Short:   "a part of a drill, started by it",
		Example: "  tenure drill list",
		RunE:    func(cmd *cobra.Command, _ []string) error { return part(cmd.Context()) },
	}
}

func (a *app) drillListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "the drills, one a line",
		Long:    "Lists the drills. `tenure drill NAME --help` says what one shows, and what it is without enforcement.",
		Example: "  tenure drill list",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, s := range drill.Scenarios() {
				fmt.Fprintf(t, "%s\t%s\n", s.Name, s.Summary)
			}
			return t.Flush()
		},
	}
}

// drillFlags are what a drill may be told.
type drillFlags struct {
	rounds                                  int
	unfenced, throughAPI, highWater, asJSON bool
	s3, folder                              string
}

func (a *app) scenarioCommand(s drill.Scenario) *cobra.Command {
	var f drillFlags
	example := "  tenure drill %[1]s --store sqlite:\n  tenure drill %[1]s --store sqlite: --unfenced --json"
	switch {
	case s.OwnServers:
		example = "  tenure drill %[1]s\n  tenure drill %[1]s --unfenced --json"
	case s.PostgresOnly:
		example = "  tenure drill %[1]s\n  tenure drill %[1]s --store postgres://app@127.0.0.1/shop\n  tenure drill %[1]s --unfenced --json"
	}
	if s.Objects {
		example = "  export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...\n" +
			"  tenure drill %[1]s --store sqlite: --s3 http://127.0.0.1:7070/bucket\n" +
			"  tenure drill %[1]s --store postgres://app@127.0.0.1/shop --s3 https://s3.example.com/bucket --unfenced --json"
	}
	if s.Files {
		example += "\n  tenure drill %[1]s --store sqlite: --folder /srv/data"
	}
	if s.Payments || s.Sales || s.Mail {
		example += "\n  tenure drill %[1]s --store postgres://app@127.0.0.1/shop --rounds 10"
	}
	if s.Name == "pause" {
		example += "\n  tenure drill %[1]s --store sqlite: --through-api"
	}
	if s.Name == "story" {
		example += "\n  tenure drill %[1]s --store memory:"
	}
	cmd := &cobra.Command{
		Use:     s.Name,
		Short:   s.Summary,
		Long:    wrap(s.Shows, 112) + "\n\nWith --unfenced: " + wrap(s.Unfenced, 112),
		Example: fmt.Sprintf(example, s.Name),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.drill(cmd.Context(), s, f) },
	}
	cmd.Flags().IntVar(&f.rounds, "rounds", s.Rounds, fmt.Sprintf("how often it is played, 1 to %d", s.MaxRounds()))
	off := "the resource's checks"
	if s.OwnServers {
		off = "the jump of a new incarnation"
	}
	if s.Payments || s.Mail {
		off = "what prevents the damage"
	}
	if s.Sales {
		off = "holds in a table of the application's own, the store's"
	}
	cmd.Flags().BoolVar(&f.unfenced, "unfenced", false, "with "+off+" off; ok means that the damage is seen")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, on the last line")
	if s.Objects {
		cmd.Flags().StringVar(&f.s3, "s3", "", "`URL` of the bucket, http(s)://HOST:PORT/BUCKET; default: TENURE_S3. Keys: AWS_ACCESS_KEY_ID\n"+
			"and AWS_SECRET_ACCESS_KEY, or KEY:SECRET@ in the URL. An argument is visible to other users of\n"+
			"the machine, the environment is not. Never printed")
	}
	if s.Files {
		cmd.Flags().StringVar(&f.folder, "folder", "", "where a folder for the files is made, and removed afterwards; default: where the system\nkeeps temporary files")
	}
	if !s.OwnServers && !s.PostgresOnly && !s.Objects && !s.Files && !s.Service && !s.Tables && !s.Payments && !s.Sales && !s.Mail && s.Name != "story" {
		cmd.Flags().BoolVar(&f.highWater, "high-water", false, "the resource checks its high-water mark, not the authority's rows")
	}
	if s.Name == "pause" {
		cmd.Flags().BoolVar(&f.throughAPI, "through-api", false, "send the late write through the library, not straight to the resource")
	}
	return cmd
}

// drill plays a scenario and prints its report.
func (a *app) drill(ctx context.Context, s drill.Scenario, f drillFlags) error {
	if f.rounds < 1 {
		return usagef("want 1 to %d rounds, got %d", s.MaxRounds(), f.rounds)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the clean-up too
	o := drill.Options{Scenario: s.Name, Rounds: f.rounds, Unfenced: f.unfenced, ThroughAPI: f.throughAPI, HighWater: f.highWater}
	if !f.asJSON {
		o.Progress = a.stderr
	}
	if s.Objects {
		if o.S3 = f.s3; o.S3 == "" {
			o.S3 = a.env.getenv("TENURE_S3")
		}
		if o.S3 == "" {
			return usagef("drill %s needs a bucket: --s3 http://HOST:PORT/BUCKET, or TENURE_S3", s.Name)
		}
	}
	if f.folder != "" {
		folder, err := filepath.Abs(f.folder)
		if err != nil {
			return usagef("--folder: %v", err)
		}
		o.Folder = folder
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("where this program is, to start it as workers: %w", err)
	}
	o.Self = []string{self, "drill"}
	if err := a.drillStore(ctx, s, &o); err != nil {
		return err
	}
	report, err := drill.Run(ctx, o)
	switch {
	case errors.Is(err, drill.ErrInterrupted):
		fmt.Fprintf(a.stderr, "tenure: drill %s: %v\n", s.Name, err)
		return &codedError{exitInterrupted}
	case errors.Is(err, drill.ErrOption), errors.Is(err, drill.ErrUnknownScenario):
		return usagef("%v", err)
	case err != nil:
		return needsSchema(err)
	}
	write := report.WriteTable
	if f.asJSON {
		write = report.WriteJSON
	}
	if err := write(a.stdout); err != nil {
		return err
	}
	if !report.OK {
		return &codedError{exitFailed}
	}
	return nil
}

// drillStore says where to drill. A store in a file is made if it is missing; no place means in memory, or on servers of the drill's own.
func (a *app) drillStore(ctx context.Context, s drill.Scenario, o *drill.Options) error {
	named := a.storeFlag
	if named == "" {
		named = a.env.getenv("TENURE_STORE")
	}
	switch {
	case s.OwnServers && a.storeFlag != "":
		return usagef("drill %s builds servers of its own and touches no store of yours: leave --store out", s.Name)
	case s.OwnServers, s.PostgresOnly && named == "":
		o.Store = "PostgreSQL servers of its own"
		return nil
	case s.PostgresOnly && !isPostgres(named):
		return usagef("drill %s is about transactions on PostgreSQL: name a postgres:// store, or none, and it starts a server of its own", s.Name)
	case named == memoryStore:
		o.Store = memoryStore
		return nil
	}
	if isRemote(named) {
		return usagef("a drill stops processes between check and write on a store of its own, and %s is a server: name a sqlite: or postgres:// store", named)
	}
	store, l, err := a.open(ctx, openOptions{})
	if err != nil {
		return err
	}
	a.close(ctx, store)
	o.Path, o.Store = l.path, l.shown
	if l.postgres {
		o.URL = l.url
	}
	return nil
}

// wrap breaks a text between words into lines of at most width bytes, where its words allow that.
func wrap(text string, width int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}
