package main

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/outbox"
)

// messageJSON is a message as --json shows it.
type messageJSON struct {
	ID         string            `json:"id"`
	Position   int64             `json:"position"`
	Topic      string            `json:"topic"`
	Key        string            `json:"key"`
	Ordered    bool              `json:"ordered"`
	State      string            `json:"state"`
	Bytes      int               `json:"bytes"`
	Attempts   int               `json:"attempts"`
	Relay      string            `json:"relay"`
	ClaimedMS  int64             `json:"claimed_ms"`
	DueInMS    int64             `json:"due_in_ms"`
	AgeMS      int64             `json:"age_ms"`
	EndedAgoMS *int64            `json:"ended_ago_ms"`
	Errors     []failureJSON     `json:"errors"`
	Headers    map[string]string `json:"headers,omitempty"`
	Payload    *bodyJSON         `json:"payload,omitempty"`
}

type failureJSON struct {
	Attempt int    `json:"attempt"`
	Relay   string `json:"relay"`
	Error   string `json:"error"`
	AgeMS   int64  `json:"age_ms"`
}

func toMessageJSON(one *outbox.Info, bodies bool) messageJSON {
	out := messageJSON{ID: one.ID.String(), Position: one.Position, Topic: one.Topic, Key: one.Key, Ordered: one.Ordered, State: one.State.String(), Bytes: one.Bytes,
		Attempts: one.Attempts, Relay: one.Relay, ClaimedMS: one.Claimed.Milliseconds(), DueInMS: one.DueIn.Milliseconds(), AgeMS: one.Age.Milliseconds(),
		Errors: []failureJSON{}, Payload: toBody(one.Payload, bodies)}
	if one.State != outbox.Pending {
		out.EndedAgoMS = milliseconds(one.Ended)
	}
	if bodies {
		out.Headers = one.Headers
	}
	for _, f := range one.Errors {
		out.Errors = append(out.Errors, failureJSON{f.Attempt, f.Relay, f.Text, f.Age.Milliseconds()})
	}
	return out
}

func (a *app) outboxShowCommand() *cobra.Command {
	var asJSON, bodies bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show all that is known of a message",
		Long: `Shows a message: how it stands, who has tried to publish it last, and the errors of its newest attempts. "its claim expired
without a verdict" is an attempt of a relay that was stopped, or died: the message may have been published by it.

Headers and payload, which may hold secrets, are left out unless --bodies asks for them.

JSON: {"id", "position", "topic", "key", "ordered", "state", "bytes": of the payload, "attempts", "relay": of the latest
claim, "claimed_ms": until that is over, 0 if it is, "due_in_ms", "age_ms", "ended_ago_ms": null while pending, "errors":
[{"attempt", "relay", "error", "age_ms"}]}. With --bodies also "headers" and "payload": {"json"} or, where it is no JSON,
{"base64"}.`,
		Example: `  tenure outbox show 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure outbox show 01936f3e-8a2b-7c4d-9e0f-123456789abc --bodies --json | jq .payload`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseMessageIDs(args)
			if err != nil {
				return err
			}
			return a.onMessages(cmd.Context(), func(m messages) error {
				one, err := m.Get(cmd.Context(), ids[0])
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(toMessageJSON(&one, bodies))
				}
				return a.describeMessage(&one, bodies)
			})
		},
	}
	cmd.Flags().BoolVar(&bodies, "bodies", false, "also print headers and payload, which may hold secrets")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) describeMessage(one *outbox.Info, bodies bool) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%v: %v, %s\n", one.ID, one.State, nextOfMessage(one))
	fmt.Fprintf(w, "  topic\t%s\n  key\t%s\n  position\t%d\n  age\t%s\n  payload\t%d bytes\n", printable(one.Topic), keyText(one), one.Position, span(one.Age), one.Bytes)
	if one.Attempts > 0 {
		fmt.Fprintf(w, "  attempts\t%d\n", one.Attempts)
	}
	if one.Relay != "" {
		fmt.Fprintf(w, "  relay\t%s\n", printable(one.Relay))
	}
	for _, f := range one.Errors {
		fmt.Fprintf(w, "  error\tattempt %d, %s ago, %s: %s\n", f.Attempt, span(f.Age), orDash(f.Relay), printable(f.Text))
	}
	if bodies {
		for _, name := range slices.Sorted(maps.Keys(one.Headers)) {
			fmt.Fprintf(w, "  header\t%s: %s\n", printable(name), printable(one.Headers[name]))
		}
		fmt.Fprintf(w, "  payload\t%s\n", orDash(bodyText(one.Payload)))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
