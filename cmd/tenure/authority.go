package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

func (a *app) authorityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "authority",
		Short:   "show which authority a store is, or make a copy another one",
		Long:    "An authority is what issues tokens: one store, whose id is in every claim. Tokens of two authorities cannot be compared.",
		Example: "  tenure authority show --store postgres://app@db.example.com/app",
		Args:    cobra.NoArgs,
		RunE:    needsCommand,
	}
	cmd.AddCommand(a.authorityShowCommand(), a.authorityNewCommand())
	return cmd
}

// authorityJSON is an authority as --json shows it.
type authorityJSON struct {
	Store     string       `json:"store"`
	Authority fence.ID     `json:"authority"`
	Schema    int          `json:"schema,omitempty"`    // 0 where a server does not say
	Installed string       `json:"installed,omitempty"` // by the server's clock
	Issued    *fence.Token `json:"issued,omitempty"`
}

func (a *app) authorityShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show which authority a store is",
		Long: `Shows the id that stands in the claims of the store, and the version of its schema. On PostgreSQL a member of
tenure_owner also sees when it was installed, by the server's clock, and the highest token that it issued or skipped.

JSON: {"store", "authority", "schema", "installed": RFC 3339, "issued": token; the last two only where they are known}.`,
		Example: `  tenure authority show
  tenure authority show --store postgres://app@db.example.com/app --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := a.readAuthority(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(out)
			}
			text := fmt.Sprintf("%s: authority %s, schema %d\n", out.Store, out.Authority, out.Schema)
			if out.Schema == 0 {
				text = fmt.Sprintf("%s: authority %s\n", out.Store, out.Authority)
			}
			if out.Issued != nil {
				text += fmt.Sprintf("  installed      %s\n  highest token  %s\n", out.Installed, out.Issued)
			}
			return a.print(text)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) readAuthority(ctx context.Context) (authorityJSON, error) {
	l, err := a.env.locate(a.storeFlag)
	if err != nil {
		return authorityJSON{}, err
	}
	if !l.postgres {
		s, _, err := a.open(ctx, openOptions{made: true})
		if err != nil {
			return authorityJSON{}, err
		}
		defer a.close(ctx, s)
		out := authorityJSON{Store: l.shown, Authority: authorityOf(s), Schema: sqlite.SchemaVersion}
		if l.remote {
			out.Schema = 0
		}
		return out, nil
	}
	var info postgres.AuthorityInfo
	err = onConnection(ctx, l, func(conn *pgx.Conn) (err error) {
		info, err = postgres.ReadAuthority(ctx, conn)
		return storeProblem(err)
	})
	out := authorityJSON{Store: l.shown, Authority: info.ID, Schema: info.Schema}
	if info.Known {
		out.Installed, out.Issued = info.Installed.UTC().Format(time.RFC3339), &info.Issued
	}
	return out, err
}

func (a *app) authorityNewCommand() *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "new --yes",
		Short: "make a copy of a database an authority of its own",
		Long: `Gives the authority of a PostgreSQL database another id, and raises its tokens. It is for a copy that is meant to live beside
its parent, such as staging made from production: until then both issue claims in the same name, and a resource that
knows only one authority cannot tell them apart.

Run it on the copy, before anything else uses it. Claims under the old id are foreign from then on, also those of the copy's
own holders; programs on the copy must be started again. Marks that the copy keeps go on under the new id; a resource
elsewhere refuses the new authority until it is told of it. The role is a member of tenure_owner.

JSON: {"store", "before", "authority"}.`,
		Example: "  tenure authority new --store postgres://admin@staging.example.com/app --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.env.locate(a.storeFlag)
			switch {
			case err != nil:
				return err
			case l.remote:
				return l.besideTheStore("authority new")
			case !l.postgres:
				return usagef("store %q: authority new is for PostgreSQL, not for this store: a file that is copied can be begun anew by tenure migrate --store sqlite:NEW", l.shown)
			case !yes:
				return usagef("authority new makes every claim that %s has issued foreign; add --yes to mean it. Nothing was changed", l.shown)
			}
			var before, after fence.ID
			err = onConnection(cmd.Context(), l, func(conn *pgx.Conn) (err error) {
				before, after, err = postgres.NewAuthority(cmd.Context(), conn)
				return storeProblem(err)
			})
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Store     string   `json:"store"`
					Before    fence.ID `json:"before"`
					Authority fence.ID `json:"authority"`
				}{l.shown, before, after})
			}
			return a.print(fmt.Sprintf("%s: authority %s, before %s; start every program on it again\n", l.shown, after, before))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "mean it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
