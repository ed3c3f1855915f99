package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func (a *app) revokeCommand() *cobra.Command {
	var token, reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke NAME --token N --reason TEXT",
		Short: "take a lease away from its holder",
		Long: `Ends the acquisition that holds NAME under exactly the token N, with all of its names. The next owner can acquire at
once. The former holder is not stopped: it learns of it with its next renewal, and until then may go on; the
output says until when at most it can believe that it holds. A resource that checks tokens refuses it as soon as a
successor has been there.

The token is the one that ` + "`tenure lease show`" + ` prints: if somebody else holds the name by now, nothing is
changed and the exit code is 1. Revoking again is success and says so.

JSON: {"already", "names", "believes_at_most_ms", "former": as of tenure lease show}.`,
		Example: `  tenure lease revoke nightly-report --token 7 --reason "host is gone"
  tenure lease revoke nightly-report --token 7 --reason "stuck, see ticket 81" --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			parsed, err := fence.ParseToken(token)
			if err != nil {
				return usagef("--token %q: want the token that `tenure lease show %s` prints", token, args[0])
			}
			req := lease.RevokeRequest{Name: args[0], Token: parsed, Reason: reason}
			if err := req.Check(); err != nil {
				return err
			}
			s, _, err := a.open(cmd.Context(), openOptions{made: true})
			if err != nil {
				return err
			}
			defer a.close(cmd.Context(), s)
			revoked, err := s.Revoke(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printRevoked(req, revoked, asJSON)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "the token that the lease is expected to have")
	cmd.Flags().StringVar(&reason, "reason", "", "why, told to the former holder: 1 to "+strconv.Itoa(lease.MaxReason)+" bytes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printRevoked(req lease.RevokeRequest, r lease.Revoked, asJSON bool) error {
	if asJSON {
		return a.printJSON(struct {
			Already          bool     `json:"already"`
			Names            []string `json:"names"`
			BelievesAtMostMS int64    `json:"believes_at_most_ms"`
			Former           infoJSON `json:"former"`
		}{r.Already, append([]string{}, r.Names...), ceilMS(r.BelievesAtMost), toJSON(r.Former)})
	}
	done := "revoked"
	if r.Already {
		done = "was revoked already"
	}
	fmt.Fprintf(a.stdout, "%s: token %s %s\n", printable(req.Name), req.Token, done)
	if len(r.Names) > 1 {
		var names []string
		for _, name := range r.Names {
			names = append(names, printable(name))
		}
		fmt.Fprintf(a.stdout, "with it, as one acquisition: %s\n", strings.Join(names, ", "))
	}
	if r.BelievesAtMost > 0 {
		fmt.Fprintf(a.stdout, "the former holder, %q, may still be running, and may believe that it holds until %s at most (%v from now)\n",
			r.Former.Owner, time.Now().Add(r.BelievesAtMost).Format("15:04:05"), r.BelievesAtMost.Round(time.Millisecond))
	} else {
		fmt.Fprintf(a.stdout, "the former holder, %q, may still be running, but can no longer believe that it holds\n", r.Former.Owner)
	}
	fmt.Fprintln(a.stdout, "what it does until it stops is refused only where the resource checks its token")
	return nil
}

// ceilMS rounds up, for an upper bound.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// printable is a name or label on a terminal: what could act on it is shown as an escape. Names hold no control
// characters, but there are others that turn a line around or hide in it.
func printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.QuoteToGraphic(text)
		}
	}
	return text
}

func (a *app) pruneCommand() *cobra.Command {
	var age time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "forget what has been over for a while",
		Long: `Deletes the rows of free names, ended sessions and closed acquisitions that have been over for at least --age. No
token repeats after it. How a forgotten acquisition ended is answered as "forgotten". A request that was under way for
longer than --age is beyond what the store can recognise, so keep --age well above any retry.`,
		Example: `  tenure lease prune
  tenure lease prune --age 72h --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if age < lease.MinPruneAge {
				return usagef("--age %v: want %v or more", age, lease.MinPruneAge)
			}
			s, _, err := a.open(cmd.Context(), openOptions{made: true})
			if err != nil {
				return err
			}
			defer a.close(cmd.Context(), s)
			total := 0
			for range maxPages {
				n, err := s.Prune(cmd.Context(), age, lease.MaxPrune)
				total += n
				if err != nil {
					return fmt.Errorf("%w; %d rows were deleted before", err, total)
				}
				if n < lease.MaxPrune {
					break
				}
			}
			if asJSON {
				return a.printJSON(struct {
					Deleted int `json:"deleted"`
				}{total})
			}
			fmt.Fprintf(a.stdout, "%d rows deleted\n", total)
			return nil
		},
	}
	cmd.Flags().DurationVar(&age, "age", 24*time.Hour, "delete what has been over for at least this long; 1h or more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
