package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const outboxLong = `An outbox keeps messages that leave if and only if the transaction that wrote them has committed. Relays publish them, at least
once, each time with the same id; what was delivered is kept until it is pruned, and can be replayed.

States: pending, it is to be published, and some relay may be at it; delivered, its destination has acknowledged it; dead, it
was given up after too many attempts, or because its destination will never take it, and is kept with its errors until it is
retried or pruned. A pending message that is ordered waits for the earlier ones of its topic and key; a dead one holds up
nothing.

Messages are appended by programs, in the transaction of what they tell of, and published by relays: see packages outbox and
relay.`

func (a *app) outboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "show, retry and replay messages, and pause topics",
		Long:  outboxLong,
		Example: `  tenure outbox topics
  tenure outbox ls --state dead
  tenure outbox show 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure outbox retry --topic tickets
  tenure outbox pause tickets --reason "the queue is being moved"`,
		Args: cobra.NoArgs,
		RunE: needsCommand,
	}
	cmd.AddCommand(a.outboxListCommand(), a.outboxShowCommand(), a.outboxTopicsCommand(), a.outboxRetryCommand(), a.outboxReplayCommand(),
		a.outboxPauseCommand(), a.outboxResumeCommand(), a.outboxPruneCommand(), a.outboxAppendCommand())
	return cmd
}

// messages is what the commands need of an outbox.
type messages interface {
	outbox.Store
	outbox.Office
}

// messagesOf is what a store keeps of messages.
func messagesOf(s store) (messages, error) {
	switch s := s.(type) {
	case interface{ Outbox() messages }:
		return s.Outbox(), nil
	case *sqlite.Store:
		return s.Outbox(), nil
	case *postgres.Store:
		return s.Outbox(), nil
	}
	return nil, usagef("this store keeps no messages; use one of another kind")
}

// onMessages opens the store and hands its messages to do.
func (a *app) onMessages(ctx context.Context, do func(messages) error) error {
	s, _, err := a.open(ctx, openOptions{made: true})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	m, err := messagesOf(s)
	if err != nil {
		return err
	}
	return do(m)
}

func parseMessageIDs(texts []string) ([]fence.ID, error) {
	ids := make([]fence.ID, len(texts))
	for i, text := range texts {
		id, err := fence.ParseID(text)
		if err != nil {
			return nil, usagef("message %q: %v", text, err)
		}
		ids[i] = id
	}
	return ids, nil
}

// completeTopics completes topics that have something pending or dead, or are paused, of a store that is there already.
func (a *app) completeTopics(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
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
	m, err := messagesOf(s)
	if err != nil {
		return nil, none
	}
	topics, err := m.Topics(cmd.Context(), "")
	if err != nil {
		return nil, none
	}
	var names []string
	for _, t := range topics {
		if t.Topic != "" {
			names = append(names, t.Topic)
		}
	}
	return names, none
}

// topicFlag adds --topic, which completes.
func (a *app) topicFlag(cmd *cobra.Command, topic *string) {
	cmd.Flags().StringVar(topic, "topic", "", "only of this topic")
	_ = cmd.RegisterFlagCompletionFunc("topic", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.completeTopics(cmd, nil, prefix)
	}) // the flag exists
}
