package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/operation"
)

// opListOptions is the command line of `tenure op ls`.
type opListOptions struct {
	req    operation.ListRequest
	states []string
	limit  int
	asJSON bool
}

// opListJSON is what it prints with --json.
type opListJSON struct {
	Operations []operationJSON `json:"operations"`
	More       bool            `json:"more"`
	Stats      []statJSON      `json:"stats"`
}

type statJSON struct {
	Kind     string `json:"kind"`
	State    string `json:"state"` // "conflicts": decided, with conflicts
	Count    int    `json:"count"`
	OldestMS int64  `json:"oldest_ms"`
	Stuck    int    `json:"stuck"`
}

func (a *app) opListCommand() *cobra.Command {
	var o opListOptions
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "list operations",
		Long: `Lists the operations that match all that is given, in the byte order of their ids, and then in one line what is undecided in
the whole store, how old the oldest is, and what is stuck: uncertain, and nothing but a late answer or an operator will
decide it. A listing describes what was. Requests and results are left out unless --bodies asks for them.

STATE says "uncertain" where an attempt may have had its effect; AGE is since the operation was submitted. NEXT is the step
that follows, and in how much time; "verdict" is of one that is stuck. MARKS: conflicts, and a wish to cancel.

JSON: {"operations": [as of tenure op show], "more": true if --limit cut it short, "stats": [{"kind", "state" or "conflicts",
"count", "oldest_ms", "stuck"}]}.`,
		Example: `  tenure op ls --state uncertain
  tenure op ls --kind charge --conflicts --json
  tenure op ls --kind run --prefix nightly-report@
  tenure op ls --limit 100 --after charge-1099`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.take(); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error { return a.listOperations(cmd.Context(), ops, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.req.Kind, "kind", "", "only of this kind")
	f.StringSliceVar(&o.states, "state", nil, "only in this `STATE`; several are separated by commas, or given one by one")
	f.BoolVar(&o.req.Conflicts, "conflicts", false, "only with answers that contradict the decision")
	f.BoolVar(&o.req.Wished, "wished", false, "only those whose cancelling was wished for and is not done")
	f.StringVar(&o.req.Prefix, "prefix", "", "only ids that start with this")
	f.StringVar(&o.req.After, "after", "", "only ids after this one: the last one of the page before")
	f.IntVar(&o.limit, "limit", operation.MaxList, "list at most `N` operations")
	f.BoolVar(&o.req.Bodies, "bodies", false, "also print requests and results, which may hold secrets")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// take checks the command line.
func (o *opListOptions) take() error {
	if o.limit < 1 {
		return usagef("--limit %d: want 1 or more", o.limit)
	}
	o.req.States = nil
	for _, text := range o.states {
		s, err := parseState(text)
		if err != nil {
			return err
		}
		o.req.States = append(o.req.States, s)
	}
	o.req.Limit = operation.MaxList
	return o.req.Check()
}

func (a *app) listOperations(ctx context.Context, ops operation.Backend, o opListOptions) error {
	found, more, err := findOperations(ctx, ops, o.req, o.limit)
	if err != nil {
		return err
	}
	stats, err := ops.Stats(ctx)
	if err != nil {
		return err
	}
	if !o.asJSON {
		return a.tableOperations(found, more, stats, o.req.Bodies)
	}
	out := opListJSON{Operations: []operationJSON{}, More: more, Stats: []statJSON{}}
	for i := range found {
		out.Operations = append(out.Operations, toOperationJSON(&found[i], o.req.Bodies))
	}
	for _, s := range stats {
		out.Stats = append(out.Stats, statJSON{s.Kind, statName(s), s.Count, s.Oldest.Milliseconds(), s.Stuck})
	}
	return a.printJSON(out)
}

// findOperations reads pages until limit operations were found, or there are no more.
func findOperations(ctx context.Context, ops operation.Office, req operation.ListRequest, limit int) (found []operation.Record, more bool, err error) {
	for range maxPages {
		req.Limit = min(operation.MaxList, limit-len(found)+1) // one more tells whether there are more
		page, err := ops.List(ctx, req)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page...)
		switch {
		case len(found) > limit:
			return found[:limit], true, nil
		case len(page) < req.Limit:
			return found, false, nil
		}
		req.After = page[len(page)-1].ID
	}
	return found, true, nil
}

func (a *app) tableOperations(found []operation.Record, more bool, stats []operation.Stat, bodies bool) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(found) > 0 {
		head := "ID\tKIND\tSTATE\tNEXT\tATTEMPTS\tAGE\tMARKS"
		if bodies {
			head += "\tREQUEST\tRESULT"
		}
		fmt.Fprintln(w, head)
	}
	for i := range found {
		rec := &found[i]
		line := fmt.Sprintf("%s\t%s\t%v\t%s\t%d\t%s\t%s", printable(rec.ID), printable(rec.Kind), rec.State, nextOf(rec), len(rec.Attempts), span(rec.Age), marksOf(rec))
		if bodies {
			line += "\t" + bodyText(rec.Request) + "\t" + bodyText(rec.Result)
		}
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if err := a.print(summary(stats) + "\n"); err != nil {
		return err
	}
	if more {
		a.say("there are more operations; go on with --after %s, or raise --limit", printable(found[len(found)-1].ID))
	}
	return nil
}

// summary is one line about the whole store.
func summary(stats []operation.Stat) string {
	var parts []string
	stuck := 0
	for _, s := range stats {
		if s.Count == 0 {
			continue
		}
		text := fmt.Sprintf("%s: %d %s, the oldest %s old", printable(s.Kind), s.Count, statWords(s), span(s.Oldest))
		if s.Stuck > 0 {
			text += fmt.Sprintf(", %d stuck", s.Stuck)
		}
		stuck += s.Stuck
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "in the store: nothing undecided, no conflicts"
	}
	line := "in the store: " + strings.Join(parts, "; ")
	if stuck > 0 {
		line += "; what is stuck needs tenure op resolve"
	}
	return line
}

func statName(s operation.Stat) string {
	if s.State == 0 {
		return "conflicts"
	}
	return s.State.String()
}

func statWords(s operation.Stat) string {
	if s.State == 0 {
		return "decided with conflicts"
	}
	return s.State.String()
}

// nextOf is the step that follows, and when.
func nextOf(rec *operation.Record) string {
	switch {
	case rec.State == operation.Uncertain && rec.Step == operation.Idle:
		return "verdict"
	case rec.Step == operation.Idle:
		return "-"
	case rec.Blocked:
		return rec.Step.String() + ", after another of its order"
	case rec.StepIn <= 0:
		return rec.Step.String() + " now"
	}
	return rec.Step.String() + " in " + span(rec.StepIn)
}

func marksOf(rec *operation.Record) string {
	var marks []string
	if rec.ConflictCount > 0 {
		marks = append(marks, fmt.Sprintf("%d conflicts", rec.ConflictCount))
	}
	if rec.CancelWished && rec.State != operation.Cancelled && rec.State != operation.Failed {
		marks = append(marks, "cancel wished")
	}
	if len(marks) == 0 {
		return "-"
	}
	return strings.Join(marks, ", ")
}

// span is a duration for people, as exact as it is worth reading.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
