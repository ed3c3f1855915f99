package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const opLong = `An operation is a piece of work that has an effect elsewhere, such as a charge, with one recorded outcome. Its id is its
submitter's. Before an effect may leave, an attempt is recorded; what became of it is an answer, or none.

States: pending, no attempt can have had an effect; attempting, one may be at work; uncertain, one may have had its effect,
and no answer says so; and the decisions succeeded, failed and cancelled, which stay. An answer that contradicts a decision
is a conflict: it is kept and listed.

Steps, what comes next: work, a worker may begin an attempt; watch, one is at work, until its claim expires; ask, the
provider is asked; undo, it is compensated; idle, nothing. One that is uncertain and idle is stuck: only an answer that
comes late, or tenure op resolve, decides it.

tenure run --once makes operations of the kind "run": see there.`

func (a *app) opCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "op",
		Short: "show, submit, await and decide operations",
		Long:  opLong,
		Example: `  tenure op ls --state uncertain
  tenure op show charge-1001
  tenure op resolve charge-1001 --succeeded --reason "in the provider's ledger" --yes`,
		Args: cobra.NoArgs,
		RunE: needsCommand,
	}
	cmd.AddCommand(a.opListCommand(), a.opShowCommand(), a.opWaitCommand(), a.opSubmitCommand(), a.opCancelCommand(), a.opResolveCommand(), a.opPruneCommand())
	return cmd
}

// operationsOf is what a store keeps of operations.
func operationsOf(s store) (operation.Backend, error) {
	switch s := s.(type) {
	case interface{ Operations() operation.Backend }:
		return s.Operations(), nil
	case *sqlite.Store:
		return s.Operations(), nil
	case *postgres.Store:
		return s.Operations(), nil
	}
	return nil, usagef("this store keeps no operations; use one of another kind")
}

// onOperations opens the store and hands its operations to do.
func (a *app) onOperations(ctx context.Context, do func(operation.Backend) error) error {
	s, _, err := a.open(ctx, openOptions{made: true})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	ops, err := operationsOf(s)
	if err != nil {
		return err
	}
	return do(ops)
}

// completeOperations completes ids, of a store that is there already.
func (a *app) completeOperations(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	l, err := a.env.locate(a.storeFlag)
	if err != nil || len(args) > 0 {
		return nil, none
	}
	s, err := a.opener(cmd.Context(), l, openOptions{made: true, wait: closeWait})
	if err != nil {
		return nil, none
	}
	defer a.close(cmd.Context(), s)
	ops, err := operationsOf(s)
	if err != nil {
		return nil, none
	}
	records, err := ops.List(cmd.Context(), operation.ListRequest{Prefix: prefix, Limit: 100})
	if err != nil {
		return nil, none
	}
	var ids []string
	for i := range records {
		ids = append(ids, records[i].ID)
	}
	return ids, none
}

// states are all, in the order in which an operation comes to them.
func states() []operation.State {
	return []operation.State{operation.Pending, operation.Attempting, operation.Uncertain, operation.Succeeded, operation.Failed, operation.Cancelled}
}

func stateNames() []string {
	var names []string
	for _, s := range states() {
		names = append(names, s.String())
	}
	return names
}

func parseState(text string) (operation.State, error) {
	for _, s := range states() {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, usagef("state %q: want one of %s", text, strings.Join(stateNames(), ", "))
}

// bodyUsage says what readBody takes.
const bodyUsage = "`BODY`: JSON; - for standard input; or the name of a file"

// readBody is a request or a result that a flag gives. JSON is put in the one form in which package operation
// stores it, so that a program which submits the same request means the same operation.
func (a *app) readBody(flag, value string) ([]byte, error) {
	text := []byte(value)
	switch {
	case value == "-":
		body, err := io.ReadAll(io.LimitReader(a.stdin, operation.MaxBody+1))
		if err != nil {
			return nil, usagef("--%s -: reading standard input: %v", flag, err)
		}
		text = body
	case !json.Valid(text):
		body, err := readFile(value)
		if err != nil {
			return nil, usagef("--%s: %.80q is not JSON, and no file that can be read: %v", flag, value, err)
		}
		text = body
	}
	if len(text) > operation.MaxBody {
		return nil, usagef("--%s: more than %d bytes; keep what is larger elsewhere, and submit where it is", flag, operation.MaxBody)
	}
	if !json.Valid(text) {
		return text, nil
	}
	return operation.Canonical(json.RawMessage(text))
}

// readFile reads no more of a file than what shows that it is too long.
func readFile(name string) (text []byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err = io.ReadAll(io.LimitReader(file, operation.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return text, nil
}

// given reports how many of these were.
func given(flags ...bool) int {
	n := 0
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}
