package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/outbox"
)

// outboxListOptions is the command line of `tenure outbox ls`.
type outboxListOptions struct {
	req    outbox.ListRequest
	states []string
	limit  int
	asJSON bool
}

func messageStates() []outbox.State {
	return []outbox.State{outbox.Pending, outbox.Delivered, outbox.Dead}
}

func messageStateNames() []string {
	var names []string
	for _, s := range messageStates() {
		names = append(names, s.String())
	}
	return names
}

func (a *app) outboxListCommand() *cobra.Command {
	var o outboxListOptions
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "list messages",
		Long: `Lists the messages that match all that is given, in the order in which they were appended. A listing describes what was.

NEXT says of a pending message when it may be published, as far as it alone counts: what is before it under its key, and a
pause of its topic, may hold it up longer. "claimed" is how long a relay has it at most. Of the others it says when they
ended.

JSON: {"messages": [as of tenure outbox show, without headers and payload unless --bodies], "more": true if --limit cut it
short}.`,
		Example: `  tenure outbox ls --state dead
  tenure outbox ls --topic tickets --key order-1001 --json
  tenure outbox ls --state pending,dead --limit 100 --after 20117`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.take(); err != nil {
				return err
			}
			return a.onMessages(cmd.Context(), func(m messages) error { return a.listMessages(cmd.Context(), m, &o) })
		},
	}
	a.topicFlag(cmd, &o.req.Topic)
	f := cmd.Flags()
	f.StringVar(&o.req.Key, "key", "", "only of this key")
	f.StringSliceVar(&o.states, "state", nil, "only in this `STATE`; several are separated by commas, or given one by one")
	f.Int64Var(&o.req.After, "after", 0, "only positions after this `POSITION`: the last one of the page before")
	f.IntVar(&o.limit, "limit", outbox.MaxList, "list at most `N` messages")
	f.BoolVar(&o.req.Bodies, "bodies", false, "in JSON, also headers and payloads, which may hold secrets")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(messageStateNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// take checks the command line.
func (o *outboxListOptions) take() error {
	if o.limit < 1 {
		return usagef("--limit %d: want 1 or more", o.limit)
	}
	if o.req.Bodies && !o.asJSON {
		return usagef("--bodies goes with --json")
	}
	o.req.States = nil
texts:
	for _, text := range o.states {
		for _, s := range messageStates() {
			if s.String() == text {
				o.req.States = append(o.req.States, s)
				continue texts
			}
		}
		return usagef("state %q: want one of %s", text, strings.Join(messageStateNames(), ", "))
	}
	o.req.Limit = outbox.MaxList
	return o.req.Check()
}

func (a *app) listMessages(ctx context.Context, m messages, o *outboxListOptions) error {
	found, more, err := findMessages(ctx, m, o.req, o.limit)
	if err != nil {
		return err
	}
	if o.asJSON {
		out := struct {
			Messages []messageJSON `json:"messages"`
			More     bool          `json:"more"`
		}{[]messageJSON{}, more}
		for i := range found {
			out.Messages = append(out.Messages, toMessageJSON(&found[i], o.req.Bodies))
		}
		return a.printJSON(out)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(found) > 0 {
		fmt.Fprintln(w, "POSITION\tID\tTOPIC\tKEY\tSTATE\tNEXT\tATTEMPTS\tAGE\tERROR")
	}
	for i := range found {
		one := &found[i]
		last := "-"
		if n := len(one.Errors); n > 0 {
			last = printable(one.Errors[n-1].Text)
		}
		fmt.Fprintf(w, "%d\t%v\t%s\t%s\t%v\t%s\t%d\t%s\t%s\n", one.Position, one.ID, printable(one.Topic), keyText(one), one.State, nextOfMessage(one), one.Attempts, span(one.Age), last)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if more {
		a.say("there are more messages; go on with --after %d, or raise --limit", found[len(found)-1].Position)
	}
	return nil
}

// keyText marks a key that orders.
func keyText(one *outbox.Info) string {
	switch {
	case one.Key == "":
		return "-"
	case one.Ordered:
		return printable(one.Key) + " (ordered)"
	}
	return printable(one.Key)
}

func nextOfMessage(one *outbox.Info) string {
	switch {
	case one.State != outbox.Pending:
		return span(one.Ended) + " ago"
	case one.Claimed > 0:
		return "claimed " + span(one.Claimed)
	case one.DueIn > 0:
		return "in " + span(one.DueIn)
	}
	return "due"
}

// findMessages reads pages until limit messages were found, or there are no more.
func findMessages(ctx context.Context, m outbox.Office, req outbox.ListRequest, limit int) (found []outbox.Info, more bool, err error) {
	for range maxPages {
		req.Limit = min(outbox.MaxList, limit-len(found)+1) // one more tells whether there are more
		page, err := m.List(ctx, req)
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
		req.After = page[len(page)-1].Position
	}
	return found, true, nil
}

type topicJSON struct {
	Topic       string `json:"topic"`
	Pending     int64  `json:"pending"`
	Dead        int64  `json:"dead"`
	OldestAgeMS *int64 `json:"oldest_age_ms"`
	Paused      bool   `json:"paused"`
	Reason      string `json:"reason"`
}

func (a *app) outboxTopicsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "count what is pending and dead, by topic",
		Long: `Counts the messages that are pending and dead, for each topic that has some or is paused, in the order of the topics. OLDEST
is the age of the oldest pending message: what grows there is not being published. A pause of all topics is shown as one of
"*".

JSON: {"topics": [{"topic": empty for the pause of all, "pending", "dead", "oldest_age_ms": null if none is pending,
"paused", "reason"}]}.`,
		Example: `  tenure outbox topics
  tenure outbox topics --json | jq '[.topics[].dead] | add'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onMessages(cmd.Context(), func(m messages) error { return a.listTopics(cmd.Context(), m, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) listTopics(ctx context.Context, m messages, asJSON bool) error {
	var found []outbox.TopicInfo
	after := ""
	for range maxPages {
		page, err := m.Topics(ctx, after)
		if err != nil {
			return err
		}
		found = append(found, page...)
		if len(page) < outbox.MaxList {
			break
		}
		after = page[len(page)-1].Topic
	}
	if asJSON {
		out := struct {
			Topics []topicJSON `json:"topics"`
		}{[]topicJSON{}}
		for _, t := range found {
			one := topicJSON{Topic: t.Topic, Pending: t.Pending, Dead: t.Dead, Paused: t.Paused, Reason: t.Reason}
			if t.Pending > 0 {
				one.OldestAgeMS = milliseconds(t.Oldest)
			}
			out.Topics = append(out.Topics, one)
		}
		return a.printJSON(out)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(found) > 0 {
		fmt.Fprintln(w, "TOPIC\tPENDING\tDEAD\tOLDEST\tPAUSED")
	}
	for _, t := range found {
		topic, oldest, paused := printable(t.Topic), "-", "-"
		if t.Topic == "" {
			topic = "*"
		}
		if t.Pending > 0 {
			oldest = span(t.Oldest.Round(time.Millisecond))
		}
		if t.Paused {
			paused = strings.TrimSuffix("yes: "+printable(t.Reason), ": ")
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", topic, t.Pending, t.Dead, oldest, paused)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
