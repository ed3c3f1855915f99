package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// maxPages bounds one listing: ten million rows.
const maxPages = 10_000

// infoJSON is a name as --json shows it.
type infoJSON struct {
	Name        string      `json:"name"`
	Token       fence.Token `json:"token"`
	Held        bool        `json:"held"`
	Owner       string      `json:"owner,omitempty"`
	Acquisition fence.ID    `json:"acquisition"`
	Session     fence.ID    `json:"session"`
	RemainingMS int64       `json:"remaining_ms"`           // at most, unless renewed
	HoldLeftMS  int64       `json:"hold_left_ms,omitempty"` // where the holder set a longest hold
	End         string      `json:"end,omitempty"`          // how the latest acquisition ended
}

func toJSON(i lease.Info) infoJSON {
	out := infoJSON{Name: i.Name, Token: i.Token, Held: i.Held, Owner: i.Owner, Acquisition: i.Acquisition, Session: i.Session,
		RemainingMS: i.Remaining.Milliseconds(), HoldLeftMS: i.HoldLeft.Milliseconds()}
	if i.End != 0 {
		out.End = i.End.String()
	}
	return out
}

// left is the time that a held name is held for at most, for people.
func left(i lease.Info) time.Duration {
	if i.HoldLeft > 0 && i.HoldLeft < i.Remaining {
		return i.HoldLeft
	}
	return i.Remaining
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func (a *app) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "show, list, revoke and forget leases",
		Long:  "Looks at the leases of a store, and takes one away or forgets what is over.",
		Example: `  tenure lease ls
  tenure lease show nightly-report --json`,
		Args: cobra.NoArgs,
		RunE: needsCommand,
	}
	cmd.AddCommand(a.lsCommand(), a.showCommand(), a.revokeCommand(), a.pruneCommand())
	return cmd
}

func (a *app) lsCommand() *cobra.Command {
	var asJSON, all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "list the names that are held",
		Long: `Lists the names that start with PREFIX and are held, in byte order, with holder, token and time left. A listing
describes what was; it is no right to anything. The time left is a bound: a holder that lives renews it.

JSON: {"leases": [{"name", "token", "held", "owner", "acquisition", "session", "remaining_ms", "hold_left_ms",
"end"}], "more": true if --limit cut it short}.`,
		Example: `  tenure lease ls
  tenure lease ls reports/ --all
  tenure lease ls --json | jq -r '.leases[] | [.name, .token, .remaining_ms] | @tsv'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			if limit < 1 {
				return usagef("--limit %d: want 1 or more", limit)
			}
			s, _, err := a.open(cmd.Context(), openOptions{made: true})
			if err != nil {
				return err
			}
			defer a.close(cmd.Context(), s)
			infos, more, err := list(cmd.Context(), s, prefix, all, limit)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printList(infos, more)
			}
			return a.tableList(infos, more)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "also list names whose lease is over")
	cmd.Flags().IntVar(&limit, "limit", lease.MaxList, "list at most `N` names")
	return cmd
}

// list reads pages until limit names were found, or there are no more. Free names count only with all.
func list(ctx context.Context, s lease.Lister, prefix string, all bool, limit int) (found []lease.Info, more bool, err error) {
	after := ""
	for range maxPages {
		page, err := s.List(ctx, lease.ListRequest{Prefix: prefix, After: after, Limit: lease.MaxList})
		if err != nil {
			return nil, false, err
		}
		for _, info := range page {
			if !info.Held && !all {
				continue
			}
			if len(found) == limit {
				return found, true, nil
			}
			found = append(found, info)
		}
		if len(page) < lease.MaxList {
			return found, false, nil
		}
		after = page[len(page)-1].Name
	}
	return found, true, nil
}

func (a *app) printList(infos []lease.Info, more bool) error {
	out := struct {
		Leases []infoJSON `json:"leases"`
		More   bool       `json:"more"`
	}{Leases: []infoJSON{}, More: more}
	for _, info := range infos {
		out.Leases = append(out.Leases, toJSON(info))
	}
	return a.printJSON(out)
}

func (a *app) tableList(infos []lease.Info, more bool) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if len(infos) > 0 {
		fmt.Fprintln(w, "NAME\tTOKEN\tSTATE\tLEFT AT MOST\tOWNER\tACQUISITION")
	}
	for _, i := range infos {
		state, at := "held", left(i).Round(time.Millisecond).String()
		if !i.Held {
			state, at = i.End.String(), "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(i.Name), i.Token, state, at, printable(i.Owner), i.Acquisition)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if more {
		a.say("there are more names; raise --limit or give a longer PREFIX")
	}
	return nil
}

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "show who holds a name, or how its latest lease ended",
		Long: `Shows one name: its latest token and acquisition, and who holds it for how long at most, unless renewed, or how the
latest lease ended. A name that nobody ever acquired, or whose row was pruned, has no token; that is no error.`,
		Example: `  tenure lease show nightly-report
  tenure lease show nightly-report --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lease.CheckName(args[0]); err != nil {
				return err
			}
			s, _, err := a.open(cmd.Context(), openOptions{made: true})
			if err != nil {
				return err
			}
			defer a.close(cmd.Context(), s)
			info, err := s.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(toJSON(info))
			}
			describe(a.stdout, info)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func describe(w io.Writer, i lease.Info) {
	name := printable(i.Name)
	switch {
	case i.Token == 0:
		fmt.Fprintf(w, "%s: never acquired, or forgotten\n", name)
		return
	case i.Held:
		fmt.Fprintf(w, "%s: held by %q for at most %v, unless renewed\n", name, i.Owner, i.Remaining.Round(time.Millisecond))
		if i.HoldLeft > 0 {
			fmt.Fprintf(w, "  longest hold ends in %v\n", i.HoldLeft.Round(time.Millisecond))
		}
	default:
		fmt.Fprintf(w, "%s: free; the latest lease is over: %s\n", name, i.End)
	}
	fmt.Fprintf(w, "  token        %s\n  acquisition  %s\n  session      %s\n", i.Token, i.Acquisition, i.Session)
}
