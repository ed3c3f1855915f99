package sqlite

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/fence"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// Why a protected table refuses a row. The texts stand in the triggers.
const (
	rowUnnamed   = "its name is NULL, which no claim is to; nothing was written; give the row the columns that its name is made of"
	rowUnclaimed = "no claim was presented in this transaction; nothing was written; acquire that lease and present its claim (tenure: Present) in the transaction, before the write"
	rowOfOther   = "the claims that this transaction has presented are to other names; nothing was written; present the one to the row's name too"
	rowLeftOver  = "what was presented was so by another transaction, which has ended; nothing was written; present the claim to the row's name in this one"
	rowMet       = "the write meets such a row under a unique key, and no claim to the name of that row was presented; nothing was written; present that one too"
)

const refusalPrefix = "tenure: refused a row of "

// refusal is the error of a trigger as an SQL literal: RAISE takes no expression before SQLite 3.47, and a file with a newer form could not
// be opened by an older library at all. So it names the expression, not the row's own name.
func (g guard) refusal(why string) string {
	return literal(refusalPrefix + strconv.Quote(g.table.Name) + ", written under the lease " + strconv.Quote(g.name) + ": " + why)
}

// FenceError turns the refusal of a protected table, in a driver's error of any statement or row, into a [*RowError], and returns every other
// error as it is. presented are the claims that the caller's transaction has presented, for the error to name. Statements of the [*Tx] of
// [Store.Fenced] that are run by ExecContext have passed through it.
func FenceError(err error, presented ...fence.Claim) error {
	var e *driver.Error
	if _, typed := errors.AsType[*RowError](err); typed || !errors.As(err, &e) || e.Code() != lib.SQLITE_CONSTRAINT_TRIGGER {
		return err
	}
	// The code is that of every RAISE, also of other people's triggers.
	_, text, ours := strings.Cut(e.Error(), refusalPrefix)
	if !ours {
		return err
	}
	refused := &RowError{Err: err, Presented: presented}
	rest := text
	for _, field := range []struct {
		before string
		into   *string
	}{{"", &refused.Table}, {", written under the lease ", &refused.Name}} {
		after, ok := strings.CutPrefix(rest, field.before)
		quoted, quoteErr := strconv.QuotedPrefix(after)
		if !ok || quoteErr != nil {
			return err
		}
		if *field.into, quoteErr = strconv.Unquote(quoted); quoteErr != nil {
			return err
		}
		rest = after[len(quoted):]
	}
	refused.Why = strings.TrimPrefix(rest, ": ")
	if i := strings.LastIndex(refused.Why, " ("); i > 0 && strings.HasSuffix(refused.Why, ")") { // the driver's code
		refused.Why = refused.Why[:i]
	}
	return refused
}
