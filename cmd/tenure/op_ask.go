package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/operation"
)

func (a *app) opWaitCommand() *cobra.Command {
	var timeout time.Duration
	var asJSON, bodies bool
	cmd := &cobra.Command{
		Use:   "wait ID [flags]",
		Short: "wait until an operation is decided",
		Long: `Waits until the operation is decided, and shows it. That the wait ends first says nothing of the operation: ask again, as
often as you like. A store that does not answer is asked again. Without --timeout there is no limit.

Exit codes: 0 succeeded; 1 failed or cancelled, which the output tells apart, or no such operation; when the wait ended
first, 75 for one that is not decided yet, and 78 for one that is uncertain: an attempt may have had its effect.

JSON: as of tenure op show.`,
		Example: `  tenure op wait charge-1001 --timeout 30s
  tenure op wait charge-1001 --timeout 30s --json | jq -r .state`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch err := operation.CheckID(args[0]); {
			case err != nil:
				return err
			case timeout < 0 || timeout == 0 && cmd.Flags().Changed("timeout"):
				return usagef("--timeout %v: want more than 0; without it there is no limit", timeout)
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error {
				rec, err := awaitOperation(cmd.Context(), ops, args[0], timeout)
				if rec.ID == "" {
					return undecided(err)
				}
				if shown := a.printOperation(&rec, bodies, asJSON); shown != nil {
					return shown
				}
				return a.waited(&rec, err)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait at most this long; without it there is no limit")
	cmd.Flags().BoolVar(&bodies, "bodies", false, "also print the request and the results, which may hold secrets")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func awaitOperation(ctx context.Context, ops operation.Store, id string, timeout time.Duration) (operation.Record, error) {
	if timeout > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, timeout)
		defer done()
	}
	return operation.Wait(ctx, ops, id)
}

// undecided is the error of a wait that has read nothing.
func undecided(err error) error {
	var ended *operation.UndecidedError
	if errors.As(err, &ended) && ended.Failure != nil {
		return &storeError{err}
	}
	return err
}

// waited is the exit code of a wait that has read the operation, with a last line where it is not 0.
func (a *app) waited(rec *operation.Record, err error) error {
	switch {
	case rec.State == operation.Succeeded:
		return nil
	case rec.State.Decided():
		a.say("%q %s", rec.ID, map[bool]string{true: "was cancelled", false: "has failed"}[rec.State == operation.Cancelled])
		return &codedError{exitFailed}
	case rec.State == operation.Uncertain:
		a.say("%v", err)
		return &codedError{exitUncertain}
	}
	a.say("%v", err)
	return &codedError{exitNotAcquired}
}

// opSubmitOptions is the command line of `tenure op submit`.
type opSubmitOptions struct {
	req     operation.SubmitRequest
	request string
	asJSON  bool
}

func (a *app) opSubmitCommand() *cobra.Command {
	var o opSubmitOptions
	cmd := &cobra.Command{
		Use:   "submit KIND ID [flags]",
		Short: "submit an operation",
		Long: `Records the operation ID, pending, for a worker that knows KIND. ID is yours, and is for one request, ever: submitted again
with the same kind and request it is returned as it stands, with another of them it is refused. When the answer was lost,
submit again.

A request that is JSON is stored in one form, with the names of its objects sorted, so that a Go program which submits the
same request by operation.Kind means the same operation. Anything else is stored byte by byte. At most 1048576 bytes.

--compensates names an operation that this one undoes: refused until that one has succeeded.

JSON: as of tenure op show, and "known": true if it was submitted before.`,
		Example: `  tenure op submit charge charge-1001 --request '{"order": 1001, "cents": 4200}'
  tenure op submit report report-7 --request report.json --run-in 1h --priority 3
  tenure op submit refund refund-1001 --request - --compensates charge-1001 < refund.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.req.Kind, o.req.ID = args[0], args[1]
			if cmd.Flags().Changed("request") {
				body, err := a.readBody("request", o.request)
				if err != nil {
					return err
				}
				o.req.Request = body
			}
			o.req.Fingerprint = operation.FingerprintOf(o.req.Kind, o.req.Request)
			if err := o.req.Check(); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error {
				sub, err := ops.Submit(cmd.Context(), o.req)
				if err != nil {
					return err
				}
				return a.printSubmitted(&sub, o.asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.request, "request", "", "the request, "+bodyUsage+". Default: none")
	f.DurationVar(&o.req.RunIn, "run-in", 0, "begin no sooner than in this time")
	f.IntVar(&o.req.Priority, "priority", 0, "0, the least urgent, to 3")
	f.StringVar(&o.req.Order, "order", "", "`KEY`: operations of one key begin one after the other, each when the one before is decided")
	f.StringVar(&o.req.Compensates, "compensates", "", "`ID` of the operation that this one undoes")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("compensates", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.completeOperations(cmd, nil, prefix)
	}) // the flag exists
	return cmd
}

func (a *app) printSubmitted(sub *operation.Submitted, asJSON bool) error {
	if asJSON {
		return a.printJSON(struct {
			operationJSON
			Known bool `json:"known"`
		}{toOperationJSON(&sub.Record, false), sub.Known})
	}
	if sub.Known {
		return a.print(fmt.Sprintf("%s: was submitted %s ago, and is %v\n", printable(sub.ID), span(sub.Age), sub.State))
	}
	return a.print(fmt.Sprintf("%s: submitted; next: %s\n", printable(sub.ID), nextOf(&sub.Record)))
}
