package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/hold"
)

// holdListOptions is the command line of `tenure hold ls`.
type holdListOptions struct {
	req    hold.ListRequest
	states []string
	after  string
	limit  int
	asJSON bool
}

func holdStates() []hold.State {
	return []hold.State{hold.Held, hold.Confirmed, hold.Released, hold.Expired, hold.Late}
}

func holdStateNames() []string {
	var names []string
	for _, s := range holdStates() {
		names = append(names, s.String())
	}
	return names
}

func (a *app) holdListCommand() *cobra.Command {
	var o holdListOptions
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "list holds",
		Long: `Lists the holds that match all that is given, in the order of their ids. A listing describes what was.

LEFT is until the hold expires, unless it is extended; ENDED is since it ended, of one that expired since its deadline. A
late one is a payment, under REFERENCE, for which nothing was sold: look here for what is to be given back.

JSON: {"holds": [as of tenure hold show], "more": true if --limit cut it short}.`,
		Example: `  tenure hold ls --state late
  tenure hold ls --item hall-1/row-3/seat-12 --json
  tenure hold ls --actor buyer-7 --state held,confirmed
  tenure hold ls --limit 100 --after 01936f3e-8a2b-7c4d-9e0f-123456789abc`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.take(); err != nil {
				return err
			}
			return a.onHolds(cmd.Context(), func(h holds) error { return a.listHolds(cmd.Context(), h, &o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.req.Actor, "actor", "", "only this actor's")
	f.StringVar(&o.req.Item, "item", "", "only with a line of this item")
	f.StringSliceVar(&o.states, "state", nil, "only in this `STATE`; several are separated by commas, or given one by one")
	f.StringVar(&o.after, "after", "", "only ids after this `ID`: the last one of the page before")
	f.IntVar(&o.limit, "limit", hold.MaxList, "list at most `N` holds")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(holdStateNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// take checks the command line.
func (o *holdListOptions) take() error {
	if o.limit < 1 {
		return usagef("--limit %d: want 1 or more", o.limit)
	}
	o.req.States = nil
texts:
	for _, text := range o.states {
		for _, s := range holdStates() {
			if s.String() == text {
				o.req.States = append(o.req.States, s)
				continue texts
			}
		}
		return usagef("state %q: want one of %s", text, strings.Join(holdStateNames(), ", "))
	}
	if o.after != "" {
		id, err := parseHoldID(o.after)
		if err != nil {
			return err
		}
		o.req.After = id
	}
	o.req.Limit = hold.MaxList
	return o.req.Check()
}

func (a *app) listHolds(ctx context.Context, h holds, o *holdListOptions) error {
	found, more, err := findHolds(ctx, h, o.req, o.limit)
	if err != nil {
		return err
	}
	if o.asJSON {
		out := struct {
			Holds []holdJSON `json:"holds"`
			More  bool       `json:"more"`
		}{[]holdJSON{}, more}
		for i := range found {
			out.Holds = append(out.Holds, toHoldJSON(&found[i]))
		}
		return a.printJSON(out)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(found) > 0 {
		fmt.Fprintln(w, "ID\tACTOR\tSTATE\tLEFT\tENDED\tREFERENCE\tLINES")
	}
	for i := range found {
		one := &found[i]
		left, ended := "-", "-"
		if one.State == hold.Held {
			left = span(one.Left)
		} else {
			ended = span(one.Ended) + " ago"
		}
		fmt.Fprintf(w, "%v\t%s\t%v\t%s\t%s\t%s\t%s\n", one.ID, printable(one.Actor), one.State, left, ended, orDash(one.Reference), linesText(one.Lines))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if more {
		a.say("there are more holds; go on with --after %v, or raise --limit", found[len(found)-1].ID)
	}
	return nil
}

// findHolds reads pages until limit holds were found, or there are no more.
func findHolds(ctx context.Context, h hold.Office, req hold.ListRequest, limit int) (found []hold.Hold, more bool, err error) {
	for range maxPages {
		req.Limit = min(hold.MaxList, limit-len(found)+1) // one more tells whether there are more
		page, err := h.List(ctx, req)
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

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// linesText are the first lines of a hold.
func linesText(lines []hold.Line) string {
	const most = 3
	var parts []string
	for i, l := range lines {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(lines)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%d of %s", l.Quantity, printable(l.Item)))
	}
	return strings.Join(parts, ", ")
}

// holdItemsOptions is the command line of `tenure hold items`.
type holdItemsOptions struct {
	prefix, after string
	limit         int
	asJSON        bool
}

type itemJSON struct {
	Item     string `json:"item"`
	Quantity int64  `json:"quantity"`
	Sold     int64  `json:"sold"`
	Held     int64  `json:"held"`
	Free     int64  `json:"free"`
}

func (a *app) holdItemsCommand() *cobra.Command {
	var o holdItemsOptions
	cmd := &cobra.Command{
		Use:   "items [flags]",
		Short: "list what is for sale, sold and held",
		Long: `Lists items in the byte order of their names: how much there is of each, what of it is sold, what holds that are live have,
and what is free. A listing describes what was.

JSON: {"items": [{"item", "quantity", "sold", "held", "free"}], "more": true if --limit cut it short}.`,
		Example: `  tenure hold items --prefix hall-1/
  tenure hold items --json | jq '[.items[].free] | add'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.limit < 1 {
				return usagef("--limit %d: want 1 or more", o.limit)
			}
			if err := hold.CheckPage(o.prefix, o.after, hold.MaxList); err != nil {
				return err
			}
			return a.onHolds(cmd.Context(), func(h holds) error { return a.listItems(cmd.Context(), h, &o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prefix, "prefix", "", "only names that start with this")
	f.StringVar(&o.after, "after", "", "only names after this one: the last one of the page before")
	f.IntVar(&o.limit, "limit", hold.MaxList, "list at most `N` items")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) listItems(ctx context.Context, h holds, o *holdItemsOptions) error {
	found, more, err := findItems(ctx, h, o)
	if err != nil {
		return err
	}
	if o.asJSON {
		out := struct {
			Items []itemJSON `json:"items"`
			More  bool       `json:"more"`
		}{[]itemJSON{}, more}
		for _, i := range found {
			out.Items = append(out.Items, itemJSON{i.Name, i.Quantity, i.Sold, i.Held, i.Quantity - i.Sold - i.Held})
		}
		return a.printJSON(out)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(found) > 0 {
		fmt.Fprintln(w, "ITEM\tQUANTITY\tSOLD\tHELD\tFREE")
	}
	for _, i := range found {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", printable(i.Name), i.Quantity, i.Sold, i.Held, i.Quantity-i.Sold-i.Held)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if more {
		a.say("there are more items; go on with --after %s, or raise --limit", printable(found[len(found)-1].Name))
	}
	return nil
}

// findItems reads pages until enough items were found, or there are no more.
func findItems(ctx context.Context, h hold.Office, o *holdItemsOptions) (found []hold.ItemInfo, more bool, err error) {
	after := o.after
	for range maxPages {
		limit := min(hold.MaxList, o.limit-len(found)+1) // one more tells whether there are more
		page, err := h.Items(ctx, o.prefix, after, limit)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page...)
		switch {
		case len(found) > o.limit:
			return found[:o.limit], true, nil
		case len(page) < limit:
			return found, false, nil
		}
		after = page[len(page)-1].Name
	}
	return found, true, nil
}
