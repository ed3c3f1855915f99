package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// holdJSON is a hold as --json shows it.
type holdJSON struct {
	ID         string     `json:"id"`
	Actor      string     `json:"actor"`
	State      string     `json:"state"`
	LeftMS     int64      `json:"left_ms"`
	TTLMS      int64      `json:"ttl_ms"`
	AgeMS      int64      `json:"age_ms"`
	EndedAgoMS *int64     `json:"ended_ago_ms"`
	Reference  string     `json:"reference"`
	Lines      []lineJSON `json:"lines"`
}

type lineJSON struct {
	Item     string `json:"item"`
	Quantity int64  `json:"quantity"`
}

func toHoldJSON(h *hold.Hold) holdJSON {
	out := holdJSON{ID: h.ID.String(), Actor: h.Actor, State: h.State.String(), LeftMS: h.Left.Milliseconds(), TTLMS: h.TTL.Milliseconds(),
		AgeMS: h.Age.Milliseconds(), Reference: h.Reference, Lines: []lineJSON{}}
	if h.State.Over() {
		out.EndedAgoMS = milliseconds(h.Ended)
	}
	for _, l := range h.Lines {
		out.Lines = append(out.Lines, lineJSON{l.Item, l.Quantity})
	}
	return out
}

func (a *app) holdShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show a hold",
		Long: `Shows a hold: whose it is, what it has, how it stands, and under which reference it was paid for.

JSON: {"id", "actor", "state", "left_ms": 0 unless held, "ttl_ms": as it was placed, "age_ms", "ended_ago_ms": null while
held, "reference": empty unless confirmed or late, "lines": [{"item", "quantity"}]}.`,
		Example: `  tenure hold show 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure hold show 01936f3e-8a2b-7c4d-9e0f-123456789abc --json | jq -r .state`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseHoldID(args[0])
			if err != nil {
				return err
			}
			return a.onHolds(cmd.Context(), func(h holds) error {
				one, err := h.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				return a.printHold(&one, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printHold(h *hold.Hold, asJSON bool) error {
	if asJSON {
		return a.printJSON(toHoldJSON(h))
	}
	return describeHold(a.stdout, h)
}

// describeHold says of a hold what a person wants to know before it is released.
func describeHold(to io.Writer, h *hold.Hold) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%v: %s\n", h.ID, holdText(h))
	fmt.Fprintf(w, "  actor\t%s\n  age\t%s\n", printable(h.Actor), span(h.Age))
	if h.Reference != "" {
		fmt.Fprintf(w, "  reference\t%s\n", printable(h.Reference))
	}
	for _, l := range h.Lines {
		fmt.Fprintf(w, "  line\t%d of %s\n", l.Quantity, printable(l.Item))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// holdText is the state, and what it means where that is easily taken for something else.
func holdText(h *hold.Hold) string {
	switch h.State {
	case hold.Held:
		return fmt.Sprintf("held; it expires in %s, unless it is extended", span(h.Left))
	case hold.Late:
		return fmt.Sprintf("late, %s ago: it had expired when the payment came; nothing was sold, and what was paid is to be given back", span(h.Ended))
	case hold.Confirmed, hold.Released, hold.Expired:
	}
	return fmt.Sprintf("%v, %s ago", h.State, span(h.Ended))
}

func (a *app) holdReleaseCommand() *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "release ID [--yes]",
		Short: "end a hold in its actor's name",
		Long: `Shows a hold that is live, and with --yes ends it in its actor's name: what it holds is free at once, and its actor cannot
confirm it any more. A payment that is under way is then refused, and not recorded with the hold: see first whether there is
one. Without --yes nothing is changed and the exit code is 64.

One that was released, or has expired, is left as it is, and that is success. One that was confirmed, or was late, is left
alone, and the exit code is 1.

JSON: as of tenure hold show, after the change.`,
		Example: `  tenure hold release 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure hold release 01936f3e-8a2b-7c4d-9e0f-123456789abc --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseHoldID(args[0])
			if err != nil {
				return err
			}
			return a.onHolds(cmd.Context(), func(h holds) error { return a.releaseHold(cmd.Context(), h, id, yes, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "mean it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) releaseHold(ctx context.Context, h holds, id fence.ID, yes, asJSON bool) error {
	one, err := h.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := describeHold(a.stderr, &one); err != nil {
		return err
	}
	if one.State == hold.Held && !yes {
		return usagef("this takes from %q what it holds; add --yes to mean it. Nothing was changed", one.Actor)
	}
	if one, err = h.Release(ctx, id, one.Actor); err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(toHoldJSON(&one))
	}
	return a.print(fmt.Sprintf("%v: %v\n", one.ID, one.State))
}
