package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/operation"
)

func (a *app) opCancelCommand() *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel ID --reason TEXT",
		Short: "ask that an operation should not happen",
		Long: `Cancels the operation, if no attempt can have had its effect. Otherwise that is a wish: it is recorded, and if the effect
turns out to have happened, a reconciler compensates it where the kind can be compensated. Nothing that is under way is
stopped.

Exit codes: 0 cancelled, now or before; 1 it is decided otherwise, or there is no such operation; 75 the wish was recorded,
and an attempt is at work; 78 the wish was recorded, and the operation is uncertain.

JSON: as of tenure op show.`,
		Example:           `  tenure op cancel charge-1001 --reason "order was withdrawn"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(operation.CheckID(args[0]), operation.CheckReason(reason, true)); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error {
				rec, err := ops.Cancel(cmd.Context(), args[0], reason)
				if err != nil {
					return err
				}
				return a.printCancelled(&rec, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why: 1 to "+strconv.Itoa(operation.MaxReason)+" bytes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printCancelled(rec *operation.Record, asJSON bool) error {
	code, text := exitOK, "cancelled; it will not happen"
	switch rec.State {
	case operation.Cancelled:
	case operation.Uncertain:
		code, text = exitUncertain, "not cancelled: it is uncertain, and an attempt may have had its effect; the wish is recorded"
	default:
		code, text = exitNotAcquired, fmt.Sprintf("not cancelled: it is %v, and an attempt may have its effect; the wish is recorded", rec.State)
	}
	var err error
	if asJSON {
		err = a.printJSON(toOperationJSON(rec, false))
	} else {
		err = a.print(fmt.Sprintf("%s: %s\n", printable(rec.ID), text))
	}
	if err != nil || code == exitOK {
		return err
	}
	if asJSON {
		a.say("%q: %s", rec.ID, text)
	}
	return &codedError{code}
}

// opResolveOptions is the command line of `tenure op resolve`.
type opResolveOptions struct {
	id, reason, result         string
	succeeded, failed, notDone bool
	yes, asJSON                bool
	body                       []byte
}

func (a *app) opResolveCommand() *cobra.Command {
	var o opResolveOptions
	cmd := &cobra.Command{
		Use:   "resolve ID --succeeded|--failed|--not-done --reason TEXT [--yes]",
		Short: "decide an operation that is uncertain",
		Long: `Shows what is known of an operation that is uncertain, and with --yes records an operator's word on it. Without --yes
nothing is changed and the exit code is 64. Look at the provider first, or at whatever the effect was on: nothing here can
know.

--succeeded: the effect happened. --result is what the provider would have answered.
--failed: it did not, and cannot any more. The decision stays: the same id is never attempted again.
--not-done: none of the attempts without an answer had an effect, or can have it any more. The operation is pending then,
and may be attempted again, as by the next tenure run --once under its key; one whose cancelling was wished for is
cancelled.

An answer that comes later and contradicts is kept as a conflict, and does not change the decision. An operation that is not
uncertain is left alone, and the exit code is 1.

On PostgreSQL the role is a member of tenure_operator; for --not-done tenure_user is enough.

JSON: as of tenure op show, after the change.`,
		Example: `  tenure op resolve charge-1001 --succeeded --reason "in the provider's ledger"
  tenure op resolve charge-1001 --succeeded --reason "in the provider's ledger" --result answer.json --yes
  tenure op resolve nightly-report@2026-11-30 --not-done --reason "host lost power, no report there" --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			if err := o.take(a, cmd.Flags().Changed("result")); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error { return a.resolve(cmd.Context(), ops, &o) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.succeeded, "succeeded", false, "the effect happened")
	f.BoolVar(&o.failed, "failed", false, "the effect did not happen, and cannot any more; never again under this id")
	f.BoolVar(&o.notDone, "not-done", false, "no attempt had an effect, or can have it any more; it may be attempted again")
	f.StringVar(&o.reason, "reason", "", "how you know: 1 to "+strconv.Itoa(operation.MaxReason)+" bytes")
	f.StringVar(&o.result, "result", "", "what the provider answered, "+bodyUsage+"; with --succeeded")
	f.BoolVar(&o.yes, "yes", false, "mean it")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// take checks the command line.
func (o *opResolveOptions) take(a *app, withResult bool) error {
	if err := errors.Join(operation.CheckID(o.id), operation.CheckReason(o.reason, true)); err != nil {
		return err
	}
	switch n := given(o.succeeded, o.failed, o.notDone); {
	case n != 1:
		return usagef("give one of --succeeded, --failed and --not-done")
	case withResult && !o.succeeded:
		return usagef("--result goes with --succeeded: there is none of what did not happen")
	case !withResult:
		return nil
	}
	body, err := a.readBody("result", o.result)
	o.body = body
	return err
}

// resolve shows what is known on standard error, so that standard output is what became of it.
func (a *app) resolve(ctx context.Context, ops operation.Backend, o *opResolveOptions) error {
	rec, err := ops.Get(ctx, o.id)
	if err != nil {
		return err
	}
	if err := describeOperation(a.stderr, &rec, false); err != nil {
		return err
	}
	switch {
	case rec.State.Decided():
		return &operation.StateError{Kind: operation.ErrDecided, ID: o.id, State: rec.State, What: "a verdict"}
	case rec.State != operation.Uncertain:
		return &operation.StateError{Kind: operation.ErrUndecided, ID: o.id, State: rec.State, What: "a verdict before an attempt has ended without an answer"}
	case !o.yes:
		return usagef("this decides what no program knows; add --yes to mean it. Nothing was changed")
	}
	if rec, err = o.apply(ctx, ops, &rec); err != nil {
		return err
	}
	if o.asJSON {
		return a.printJSON(toOperationJSON(&rec, false))
	}
	return a.print(fmt.Sprintf("%s: %v\n", printable(rec.ID), rec.State))
}

// apply records the verdict. That no attempt had an effect is evidence of each of them: should another have begun
// meanwhile, it is not touched.
func (o *opResolveOptions) apply(ctx context.Context, ops operation.Backend, rec *operation.Record) (operation.Record, error) {
	verdict := operation.Verdict{ID: o.id, State: operation.Failed, Reason: o.reason}
	switch {
	case o.succeeded:
		verdict.State, verdict.Result = operation.Succeeded, o.body
		return ops.Resolve(ctx, verdict)
	case o.failed:
		return ops.Resolve(ctx, verdict)
	}
	after := *rec
	for _, at := range rec.Attempts {
		if at.Known != operation.NoAnswer {
			continue
		}
		next, err := ops.Respond(ctx, operation.Response{ID: o.id, Number: at.Number, Answer: operation.Answer{Known: operation.Refused, Reason: operation.Cut("an operator: " + o.reason)}})
		if err != nil && !(errors.Is(err, operation.ErrStale) && !next.State.Decided()) { // of an earlier attempt it is recorded all the same
			return next, err
		}
		after = next
	}
	return after, nil
}

const opPruneLong = `Forgets operations that were decided long ago, in stages: after --bodies their requests and results; after --records all but
the id, the kind, the fingerprint and the verdict; after --forget the operation itself. A stage that is not given is left
out, and at least one is needed. What is undecided stays, however old, and so does what is still to be compensated.

After --forget an id that is submitted again is a new operation, and is done again: so it is with the occurrences of
tenure run --once. Keep it well above any retry; it is at least 24h.
On PostgreSQL the role is a member of tenure_operator.

JSON: {"bodies", "records", "forgotten"}.`

func (a *app) opPruneCommand() *cobra.Command {
	req := operation.PruneRequest{Limit: operation.MaxPrune}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "forget what was decided long ago",
		Long:  opPruneLong,
		Example: `  tenure op prune --bodies 24h
  tenure op prune --bodies 24h --records 720h --forget 8760h --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, age := range map[string]time.Duration{"bodies": req.Bodies, "records": req.Records, "forget": req.Forget} {
				if age <= 0 && cmd.Flags().Changed(name) {
					return usagef("--%s %v: want more than 0; leave it out to keep them", name, age)
				}
			}
			if err := req.Check(); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error {
				total, err := pruneAll(cmd.Context(), ops, req)
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(struct {
						Bodies    int `json:"bodies"`
						Records   int `json:"records"`
						Forgotten int `json:"forgotten"`
					}{total.Bodies, total.Records, total.Forgotten})
				}
				return a.print(prunedText(total) + "\n")
			})
		},
	}
	cmd.Flags().DurationVar(&req.Bodies, "bodies", 0, "forget requests and results that were decided at least this long ago")
	cmd.Flags().DurationVar(&req.Records, "records", 0, "forget all but the verdict of what was decided at least this long ago")
	cmd.Flags().DurationVar(&req.Forget, "forget", 0, "forget what was decided at least this long ago; 24h or more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// pruneAll goes on until a call has handled fewer than it might.
func pruneAll(ctx context.Context, ops operation.Office, req operation.PruneRequest) (total operation.Pruned, err error) {
	for range maxPages {
		p, err := ops.Prune(ctx, req)
		total.Bodies, total.Records, total.Forgotten = total.Bodies+p.Bodies, total.Records+p.Records, total.Forgotten+p.Forgotten
		if err != nil {
			return total, fmt.Errorf("%w; before that: %s", err, prunedText(total))
		}
		if p.Bodies+p.Records+p.Forgotten < req.Limit {
			break
		}
	}
	return total, nil
}

func prunedText(p operation.Pruned) string {
	return strings.Join([]string{fmt.Sprintf("bodies of %d operations forgotten", p.Bodies), fmt.Sprintf("records of %d", p.Records), fmt.Sprintf("%d operations as a whole", p.Forgotten)}, ", ")
}
