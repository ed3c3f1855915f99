package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// operationJSON is an operation as --json shows it.
type operationJSON struct {
	ID           string         `json:"id"`
	Kind         string         `json:"kind"`
	State        string         `json:"state"`
	Step         string         `json:"step"`
	StepInMS     int64          `json:"step_in_ms"`
	Stuck        bool           `json:"stuck"`
	Blocked      bool           `json:"blocked"`
	AgeMS        int64          `json:"age_ms"`
	DecidedAgoMS *int64         `json:"decided_ago_ms"`
	Reason       string         `json:"reason"`
	CancelWished bool           `json:"cancel_wished"`
	Compensates  string         `json:"compensates"`
	UndoneBy     string         `json:"undone_by"`
	Priority     int            `json:"priority"`
	Order        string         `json:"order"`
	NotAfter     string         `json:"not_after"`
	Inquiries    int            `json:"inquiries"`
	Kept         string         `json:"kept"`
	Fingerprint  string         `json:"fingerprint"`
	Attempts     []attemptJSON  `json:"attempts"`
	ConflictN    int            `json:"conflict_count"`
	Conflicts    []conflictJSON `json:"conflicts"`
	Request      *bodyJSON      `json:"request,omitempty"`
	Result       *bodyJSON      `json:"result,omitempty"`
}

type attemptJSON struct {
	Number     fence.Token `json:"number"`
	Worker     string      `json:"worker"`
	Known      string      `json:"known"`
	BeganAgoMS int64       `json:"began_ago_ms"`
	EndedAgoMS *int64      `json:"ended_ago_ms"`
	Reason     string      `json:"reason"`
	Result     *bodyJSON   `json:"result,omitempty"`
}

type conflictJSON struct {
	Attempt fence.Token `json:"attempt"` // empty: an inquiry's
	Reason  string      `json:"reason"`
	Result  *bodyJSON   `json:"result,omitempty"`
}

// bodyJSON is a body: as the JSON that it is, or else as base64.
type bodyJSON struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

func toBody(b []byte, asked bool) *bodyJSON {
	switch {
	case !asked || len(b) == 0:
		return nil
	case json.Valid(b):
		return &bodyJSON{JSON: b}
	}
	return &bodyJSON{Base64: b}
}

func toOperationJSON(rec *operation.Record, bodies bool) operationJSON {
	out := operationJSON{ID: rec.ID, Kind: rec.Kind, State: rec.State.String(), Step: rec.Step.String(), StepInMS: rec.StepIn.Milliseconds(),
		Stuck: rec.State == operation.Uncertain && rec.Step == operation.Idle, Blocked: rec.Blocked, AgeMS: rec.Age.Milliseconds(),
		Reason: rec.Reason, CancelWished: rec.CancelWished, Compensates: rec.Compensates, UndoneBy: rec.UndoneBy, Priority: rec.Priority,
		Order: rec.Order, Inquiries: rec.Inquiries, Kept: keptName(rec.Kept), Fingerprint: rec.Fingerprint.String(), ConflictN: rec.ConflictCount,
		Attempts: []attemptJSON{}, Conflicts: []conflictJSON{}, Request: toBody(rec.Request, bodies), Result: toBody(rec.Result, bodies)}
	if rec.State.Decided() {
		out.DecidedAgoMS = milliseconds(rec.Decided)
	}
	if !rec.NotAfter.IsZero() {
		out.NotAfter = rec.NotAfter.UTC().Format(time.RFC3339Nano)
	}
	for _, at := range rec.Attempts {
		one := attemptJSON{Number: at.Number, Worker: at.Worker, Known: at.Known.String(), BeganAgoMS: at.Began.Milliseconds(), Reason: at.Reason, Result: toBody(at.Result, bodies)}
		if at.Known != operation.Open {
			one.EndedAgoMS = milliseconds(at.Ended)
		}
		out.Attempts = append(out.Attempts, one)
	}
	for _, c := range rec.Conflicts {
		out.Conflicts = append(out.Conflicts, conflictJSON{Attempt: c.Attempt, Reason: c.Reason, Result: toBody(c.Result, bodies)})
	}
	return out
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

func keptName(k operation.Kept) string {
	switch k {
	case operation.WithoutBodies:
		return "without_bodies"
	case operation.VerdictOnly:
		return "verdict_only"
	case operation.Whole:
	}
	return "whole"
}

// opJSONText documents operationJSON, for the help texts.
const opJSONText = `JSON: {"id", "kind", "state", "step", "step_in_ms", "stuck", "blocked", "age_ms", "decided_ago_ms": null while undecided,
"reason", "cancel_wished", "compensates", "undone_by", "priority", "order", "not_after": RFC 3339 or empty, "inquiries",
"kept": "whole", "without_bodies" or "verdict_only", "fingerprint", "attempts": [{"number", "worker", "known",
"began_ago_ms", "ended_ago_ms": null while open, "reason"}], "conflict_count", "conflicts": [{"attempt": empty for an
inquiry's, "reason"}]}. With --bodies also "request" and "result", each {"json"} or, where it is no JSON, {"base64"}.`

func (a *app) opShowCommand() *cobra.Command {
	var asJSON, bodies bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show all that is known of an operation",
		Long: `Shows an operation: its state and what follows, each attempt with what is known of it, answers that contradict the decision,
and what compensates what. Of an attempt is known: "effective" or "refused", which its provider answered; "not sent", its
request certainly did not leave; "open", it may be at work; "no answer", it has ended, and may have had its effect.

The request and the results, which may hold secrets, are left out unless --bodies asks for them.

` + opJSONText,
		Example: `  tenure op show charge-1001
  tenure op show nightly-report@2026-11-30 --bodies --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operation.CheckID(args[0]); err != nil {
				return err
			}
			return a.onOperations(cmd.Context(), func(ops operation.Backend) error {
				rec, err := ops.Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printOperation(&rec, bodies, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&bodies, "bodies", false, "also print the request and the results, which may hold secrets")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printOperation(rec *operation.Record, bodies, asJSON bool) error {
	if asJSON {
		return a.printJSON(toOperationJSON(rec, bodies))
	}
	return describeOperation(a.stdout, rec, bodies)
}

// describeOperation says of an operation what a person wants to know before a verdict.
func describeOperation(to io.Writer, rec *operation.Record, bodies bool) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s\n", printable(rec.ID), stateText(rec))
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, text)
		}
	}
	row("kind", printable(rec.Kind))
	row("next", nextOf(rec))
	row("age", span(rec.Age))
	row("reason", printable(rec.Reason))
	row("order", printable(rec.Order))
	row("compensates", printable(rec.Compensates))
	row("undone by", printable(rec.UndoneBy))
	if rec.CancelWished {
		row("cancel", "was wished for while an attempt may have had its effect")
	}
	if !rec.NotAfter.IsZero() {
		row("not after", rec.NotAfter.UTC().Format(time.RFC3339)+", by the provider's clock")
	}
	if rec.Inquiries > 0 {
		row("inquiries", strconv.Itoa(rec.Inquiries))
	}
	if rec.Kept != operation.Whole {
		row("kept", strings.ReplaceAll(keptName(rec.Kept), "_", " "))
	}
	if bodies {
		row("request", bodyText(rec.Request))
		row("result", bodyText(rec.Result))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return describeHistory(to, rec, bodies)
}

func describeHistory(to io.Writer, rec *operation.Record, bodies bool) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if len(rec.Attempts) > 0 {
		fmt.Fprintln(w, "  ATTEMPT\tBEGAN\tTOOK\tKNOWN\tWORKER\tREASON")
	}
	for _, at := range rec.Attempts {
		took := "-"
		if at.Known != operation.Open {
			took = span(at.Began - at.Ended)
		}
		fmt.Fprintf(w, "  %s\t%s ago\t%s\t%v\t%s\t%s\n", at.Number, span(at.Began), took, at.Known, printable(at.Worker), printable(at.Reason))
		if bodies && len(at.Result) > 0 {
			fmt.Fprintf(w, "  \tanswered\t%s\n", bodyText(at.Result))
		}
	}
	for _, c := range rec.Conflicts {
		of := "an inquiry"
		if c.Attempt > 0 {
			of = "attempt " + c.Attempt.String()
		}
		fmt.Fprintf(w, "  conflict, of %s:\t%s\n", of, printable(c.Reason))
	}
	if hidden := rec.ConflictCount - len(rec.Conflicts); hidden > 0 {
		fmt.Fprintf(w, "  and %d conflicts that were counted and not kept\n", hidden)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// stateText is the state, and what it means where that is easily taken for something else.
func stateText(rec *operation.Record) string {
	switch {
	case rec.State.Decided():
		return fmt.Sprintf("%v, %s ago", rec.State, span(rec.Decided))
	case rec.State == operation.Uncertain && rec.Step == operation.Idle:
		return "uncertain: an attempt may have had its effect; only a late answer or tenure op resolve decides it"
	case rec.State == operation.Uncertain:
		return "uncertain: an attempt may have had its effect; it is being found out"
	}
	return rec.State.String()
}

// bodyText is a body for a terminal.
func bodyText(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case !utf8.Valid(b):
		return fmt.Sprintf("%d bytes that are no text; --json has them", len(b))
	}
	text := strings.TrimRightFunc(string(b), unicode.IsSpace)
	return printable(text)
}
