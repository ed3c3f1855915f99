package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/outbox"
)

// outboxMoveOptions is the command line of `tenure outbox retry` and `tenure outbox replay`.
type outboxMoveOptions struct {
	req         outbox.MoveRequest
	limit       int
	all, asJSON bool
}

func (o *outboxMoveOptions) flags(a *app, cmd *cobra.Command, what string) {
	a.topicFlag(cmd, &o.req.Topic)
	f := cmd.Flags()
	f.StringVar(&o.req.Key, "key", "", "only of this key")
	f.Int64Var(&o.req.From, "from", 0, "only from this `POSITION` on")
	f.Int64Var(&o.req.To, "to", 0, "only up to this `POSITION`")
	f.DurationVar(&o.req.Within, "within", 0, "only what was "+what+" at most this long ago")
	f.IntVar(&o.limit, "limit", 0, "at most `N` messages; 0: all that match")
	f.BoolVar(&o.all, "all", false, "whatever is "+what)
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
}

// take checks the command line.
func (o *outboxMoveOptions) take(args []string) error {
	ids, err := parseMessageIDs(args)
	if err != nil {
		return err
	}
	o.req.IDs = ids
	filtered := o.req.Topic != "" || o.req.Key != "" || o.req.From != 0 || o.req.To != 0 || o.req.Within != 0
	switch {
	case o.limit < 0:
		return usagef("--limit %d: want 0 or more", o.limit)
	case len(ids) > 0 && o.all:
		return usagef("--all goes without ids")
	case o.all && filtered:
		return usagef("--all goes without --topic, --key, --from, --to and --within")
	case len(ids) == 0 && !filtered && !o.all:
		return usagef("which? give ids, or --topic, --key, --from, --to or --within, or --all")
	}
	o.req.Limit = outbox.MaxMove
	return o.req.Check()
}

const outboxRetryLong = `Makes dead messages pending again, as if they had never been tried: by their ids, or all that match what is given. Mend first
what they failed of, which tenure outbox show says. Errors of before are kept.

An ordered message is published before the pending ones of its key that were appended later; what of these was delivered
meanwhile has overtaken it.

Each message is retried once, also where it dies again while this command runs. JSON: {"retried"}.`

func (a *app) outboxRetryCommand() *cobra.Command {
	var o outboxMoveOptions
	cmd := &cobra.Command{
		Use:   "retry [ID...] [flags]",
		Short: "publish dead messages after all",
		Long:  outboxRetryLong,
		Example: `  tenure outbox retry 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure outbox retry --topic tickets --within 24h
  tenure outbox retry --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			return a.onMessages(cmd.Context(), func(m messages) error {
				n, err := moveAll(cmd.Context(), m, outbox.Dead, m.Retry, &o)
				if err != nil {
					return fmt.Errorf("%w; before that %d messages were retried", err, n)
				}
				if o.asJSON {
					return a.printJSON(struct {
						Retried int `json:"retried"`
					}{n})
				}
				return a.print(fmt.Sprintf("%d messages are pending again\n", n))
			})
		},
	}
	o.flags(a, cmd, "dead")
	return cmd
}

const outboxReplayLong = `Makes delivered messages pending again, with their ids: by their ids, or all that match what is given. Consumers get them a
second time. One with an inbox that remembers them does nothing; one without does its work again. So --yes is needed; without
it nothing is changed and the exit code is 64.

What was pruned cannot be replayed. Each message is replayed once, also where it is delivered again while this command runs.
JSON: {"replayed"}.`

func (a *app) outboxReplayCommand() *cobra.Command {
	var o outboxMoveOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "replay [ID...] [flags] --yes",
		Short: "publish delivered messages again",
		Long:  outboxReplayLong,
		Example: `  tenure outbox replay --topic tickets --within 2h --yes
  tenure outbox replay --from 20117 --to 20500 --yes
  tenure outbox replay 01936f3e-8a2b-7c4d-9e0f-123456789abc --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			if !yes {
				return usagef("consumers get these messages a second time, and those without an inbox do their work again; add --yes to mean it. Nothing was changed")
			}
			return a.onMessages(cmd.Context(), func(m messages) error {
				n, err := moveAll(cmd.Context(), m, outbox.Delivered, m.Replay, &o)
				if err != nil {
					return fmt.Errorf("%w; before that %d messages were replayed", err, n)
				}
				if o.asJSON {
					return a.printJSON(struct {
						Replayed int `json:"replayed"`
					}{n})
				}
				return a.print(fmt.Sprintf("%d messages are pending again\n", n))
			})
		},
	}
	o.flags(a, cmd, "delivered")
	cmd.Flags().BoolVar(&yes, "yes", false, "mean it")
	return cmd
}

// moveAll goes from range to range of positions, so that it comes to each message once: those that it has moved may be delivered, or dead, again by the next call.
func moveAll(ctx context.Context, m outbox.Office, from outbox.State, move func(context.Context, outbox.MoveRequest) (int, error), o *outboxMoveOptions) (total int, err error) {
	if len(o.req.IDs) > 0 {
		req := o.req
		if o.limit > 0 {
			req.Limit = min(outbox.MaxMove, o.limit)
		}
		return move(ctx, req)
	}
	list := outbox.ListRequest{Topic: o.req.Topic, Key: o.req.Key, States: []outbox.State{from}, After: max(0, o.req.From-1), Limit: outbox.MaxList}
	for range maxPages {
		page, err := m.List(ctx, list)
		if err != nil || len(page) == 0 {
			return total, err
		}
		req := o.req
		req.From, req.To = page[0].Position, page[len(page)-1].Position
		if o.req.To > 0 {
			req.To = min(req.To, o.req.To)
		}
		if req.To < req.From {
			return total, nil
		}
		if o.limit > 0 {
			req.Limit = min(outbox.MaxMove, o.limit-total)
		}
		n, err := move(ctx, req)
		if total += n; err != nil || o.limit > 0 && total >= o.limit || len(page) < list.Limit {
			return total, err
		}
		list.After = page[len(page)-1].Position
	}
	return total, nil
}

// outboxPauseFlags are those of `tenure outbox pause` and `tenure outbox resume`.
type outboxPauseFlags struct {
	reason      string
	all, asJSON bool
}

func (a *app) pauseCommand(cmd *cobra.Command, paused bool) *cobra.Command {
	var o outboxPauseFlags
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = a.completeTopics
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 0) != o.all || o.all && len(args) > 0 || len(args) > 0 && args[0] == "" {
			return usagef("which? give a topic, or --all")
		}
		req := outbox.PauseRequest{Paused: paused, Reason: o.reason}
		if len(args) > 0 {
			req.Topic = args[0]
		}
		if err := req.Check(); err != nil {
			return err
		}
		return a.onMessages(cmd.Context(), func(m messages) error {
			if err := m.Pause(cmd.Context(), req); err != nil {
				return err
			}
			if o.asJSON {
				return a.printJSON(struct {
					Topic  string `json:"topic"`
					Paused bool   `json:"paused"`
				}{req.Topic, paused})
			}
			what, now := "every topic", "not paused"
			if req.Topic != "" {
				what = printable(req.Topic)
			}
			if paused {
				now = "paused"
			}
			return a.print(fmt.Sprintf("%s: %s\n", what, now))
		})
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every topic, instead of one")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	if paused {
		f.StringVar(&o.reason, "reason", "", "why, for those who look")
	}
	return cmd
}

func (a *app) outboxPauseCommand() *cobra.Command {
	return a.pauseCommand(&cobra.Command{
		Use:   "pause TOPIC|--all [flags]",
		Short: "let no messages of a topic be claimed",
		Long: `Stops that relays claim messages of a topic, or with --all of every topic. What a relay has claimed already is published, and
appending goes on. Pausing again changes the reason. A pause of all and one of a topic are apart, and each is resumed by
itself.

JSON: {"topic": empty for all, "paused"}.`,
		Example: `  tenure outbox pause tickets --reason "the queue is being moved"
  tenure outbox pause --all`,
	}, true)
}

func (a *app) outboxResumeCommand() *cobra.Command {
	return a.pauseCommand(&cobra.Command{
		Use:   "resume TOPIC|--all [flags]",
		Short: "end a pause",
		Long: `Ends the pause of a topic, or with --all that of every topic. What is not paused is left as it is, and that is success.

JSON: {"topic": empty for all, "paused"}.`,
		Example: `  tenure outbox resume tickets
  tenure outbox resume --all`,
	}, false)
}

func (a *app) outboxPruneCommand() *cobra.Command {
	req := outbox.PruneRequest{Limit: outbox.MaxMove}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune --delivered AGE [--dead AGE]",
		Short: "forget what was delivered long ago",
		Long: `Forgets messages that were delivered at least --delivered ago, and with --dead those that were given up at least that long ago.
What is forgotten cannot be replayed, and a message that is appended again under its id is a new one. Both are at least 1m.
What is pending is never forgotten. On PostgreSQL the role is a member of tenure_operator.

JSON: {"forgotten"}.`,
		Example: `  tenure outbox prune --delivered 168h
  tenure outbox prune --delivered 168h --dead 2160h --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Dead <= 0 && cmd.Flags().Changed("dead") {
				return usagef("--dead %v: want more than 0; leave it out to keep them", req.Dead)
			}
			if err := req.Check(); err != nil {
				return err
			}
			return a.onMessages(cmd.Context(), func(m messages) error {
				n, err := forgetAll(cmd.Context(), m, req)
				switch {
				case err != nil:
					return fmt.Errorf("%w; before that %d messages were forgotten", err, n)
				case asJSON:
					return a.printJSON(struct {
						Forgotten int `json:"forgotten"`
					}{n})
				}
				return a.print(fmt.Sprintf("%d messages forgotten\n", n))
			})
		},
	}
	cmd.Flags().DurationVar(&req.Delivered, "delivered", 0, "forget what was delivered at least this long ago; 1m or more")
	cmd.Flags().DurationVar(&req.Dead, "dead", 0, "also forget what was given up at least this long ago; 1m or more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// forgetAll goes on until a call has forgotten fewer than it might.
func forgetAll(ctx context.Context, m outbox.Office, req outbox.PruneRequest) (total int, err error) {
	for range maxPages {
		n, err := m.Prune(ctx, req)
		if total += n; err != nil || n < req.Limit {
			return total, err
		}
	}
	return total, nil
}
