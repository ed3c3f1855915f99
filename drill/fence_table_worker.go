package drill

import (
	"context"
	"database/sql"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
)

// form is how a write reaches a table that may be protected.
type form string

// What a holder does in the transaction of its write, and the statements of code that knows nothing of leases.
const (
	formPresents form = ""       // it presents its claim
	formPlain    form = "plain"  // it presents nothing
	formForged   form = "forged" // it sets by hand what presenting would set

	formUpdate  form = "update"
	formUpsert  form = "upsert"  // INSERT ... ON CONFLICT DO UPDATE
	formCopy    form = "copy"    // a newer version of the value; PostgreSQL alone
	formReplace form = "replace" // INSERT OR REPLACE; SQLite alone
	formDelete  form = "delete"
)

// presents is the check of a protected table: the claim is presented, and the triggers do the rest.
func (w *worker) presents(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	return w.res.rows.site.present(ctx, tx, claim)
}

// by is what comes before a write of that form.
func (w *worker) by(f form) check {
	switch f {
	case formPlain:
		return nil
	case formForged:
		return forge
	default:
		return w.allow
	}
}

// forge sets the claim that this process had as if it had been presented.
func forge(ctx context.Context, tx *sql.Tx, claim fence.Claim) error {
	_, err := tx.ExecContext(ctx, `SELECT set_config('tenure.presented', jsonb_build_object($1::text, $2::text)::text, true)`,
		claim.Name, claim.Acquisition.String()+":"+claim.Token.String())
	return err
}

// foreign writes what was read and an element of its own, without any lease, and records what it was told.
func (w *worker) foreign(ctx context.Context, c command) (reply, error) {
	write := w.writing(c)
	refusal, err := w.res.rows.site.stranger(ctx, w.res, c.Role, c.Form, write)
	if err != nil {
		return reply{}, err
	}
	a := model.Answer{Round: write.round, Writer: write.writer, Element: write.element, Late: true, Accepted: refusal == "", Why: refusal}
	return reply{Answer: &a, Told: refusal}, w.res.record(ctx, a)
}
