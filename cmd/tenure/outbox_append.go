package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// outboxAppendOptions is the command line of `tenure outbox append`.
type outboxAppendOptions struct {
	message           outbox.Message
	id, payload, file string
	headers           []string
	asJSON            bool
}

func (a *app) outboxAppendCommand() *cobra.Command {
	var o outboxAppendOptions
	cmd := &cobra.Command{
		Use:   "append TOPIC [flags]",
		Short: "append a message, in a transaction of its own",
		Long: `Appends a message, pending, in a transaction of its own: for a script, or to try a relay. A program appends in the transaction
of what the message tells of. The payload is kept byte by byte, at most 1048576 of them.

With --id the command can be repeated: a message that is known under the id is not appended again, and another one under it
is refused. Without it each call is a new message.

JSON: {"id"}.`,
		Example: `  tenure outbox append tickets --payload '{"order": 1001}'
  tenure outbox append tickets --key order-1001 --ordered --header content-type=application/json --payload-file - < ticket.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.message.Topic = args[0]
			if err := o.take(a, cmd.Flags().Changed); err != nil {
				return err
			}
			return a.onMessages(cmd.Context(), func(m messages) error {
				ids, err := m.Append(cmd.Context(), []outbox.Message{o.message})
				switch {
				case err != nil:
					return err
				case o.asJSON:
					return a.printJSON(struct {
						ID string `json:"id"`
					}{ids[0].String()})
				}
				return a.print(ids[0].String() + "\n")
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.payload, "payload", "", "the payload, as it is. Default: none")
	f.StringVar(&o.file, "payload-file", "", "the `FILE` that is the payload; - for standard input")
	f.StringVar(&o.message.Key, "key", "", "what the destination may partition by")
	f.BoolVar(&o.message.Ordered, "ordered", false, "publish it after every earlier ordered message of its topic and key")
	f.StringArrayVar(&o.headers, "header", nil, "a header, as `NAME=VALUE`; may be given several times")
	f.StringVar(&o.id, "id", "", "the message's `ID`, a UUID. Default: a new one")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// take checks the command line, and reads the payload.
func (o *outboxAppendOptions) take(a *app, given func(flag string) bool) error {
	if given("id") {
		id, err := fence.ParseID(o.id)
		if err != nil || id.IsZero() {
			return usagef("--id %q: want a UUID that is not zero", o.id)
		}
		o.message.ID = id
	}
	for _, text := range o.headers {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return usagef("--header %q: want NAME=VALUE", text)
		}
		if o.message.Headers == nil {
			o.message.Headers = map[string]string{}
		}
		o.message.Headers[name] = value
	}
	switch {
	case given("payload") && given("payload-file"):
		return usagef("--payload and --payload-file: give one of them")
	case given("payload"):
		o.message.Payload = []byte(o.payload)
	case given("payload-file"):
		payload, err := a.readPayload(o.file)
		if err != nil {
			return err
		}
		o.message.Payload = payload
	}
	return o.message.Check()
}

// readPayload reads no more than what shows that it is too long.
func (a *app) readPayload(name string) (payload []byte, err error) {
	if name == "-" {
		payload, err = io.ReadAll(io.LimitReader(a.stdin, outbox.MaxPayload+1))
	} else {
		payload, err = readFile(name)
	}
	if err != nil {
		return nil, usagef("--payload-file %s: %v", name, err)
	}
	return payload, nil
}
