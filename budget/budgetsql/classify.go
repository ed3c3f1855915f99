package budgetsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/tenure-go/tenure/budget"
)

// Call takes a connection and uses it. Waiting for a connection of a pool and making one may time out as well as the statement can, and only in the second case may
// something have been done. acquire is the pool's own method, such as (*pgxpool.Pool).Acquire or (*sql.DB).Conn; use gives the connection back.
//
// use keeps to the connection that it is given. The methods of (*sql.DB), and of a statement that was prepared on it, repeat by themselves what a driver answers with driver.ErrBadConn, up to twice
// and without a pause: no [budget.Throttle] counts that, the mark of [budget.NoRetry] does not hold it back, and what is seen here is the last of three attempts. Those of (*sql.Conn) and (*sql.Tx)
// do not; a statement that was prepared on a connection answers sql.ErrConnDone then, which is unknown. A driver is to answer driver.ErrBadConn only where nothing can have been done, and [Classify]
// believes it: of a driver that does so later, what was done is called not sent, and may be done three times.
//
// It returns nil or a [*budget.Error]: [budget.NotSent] if no connection was got, with the phase as far as the error tells it, else what [Classify] says.
func Call[C any](ctx context.Context, acquire func(context.Context) (C, error), use func(context.Context, C) error) error {
	conn, err := acquire(ctx)
	if err != nil {
		return &budget.Error{Class: budget.NotSent, Phase: phaseOfConnecting(err), Again: true, Err: err}
	}
	return Classify(use(ctx, conn))
}

// phaseOfConnecting is how far a connection came. A driver that hides what the network said leaves "waiting for a connection".
func phaseOfConnecting(err error) budget.Phase {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return budget.PhaseDNS
	case errors.As(err, &op) && op.Op == "dial":
		return budget.PhaseConnect
	}
	return budget.PhaseConnection
}

// Classify says what is known of a statement, or of a transaction that ended with err, as a [*budget.Error]; nil for nil.
//
// An error that the server answered with is a refusal: the statement, and the transaction that it stood in, was not applied. Those that another attempt may find otherwise
// are marked so: serialisation failures and deadlocks (40), a lock that was not got (55P03), too little of something (53), a server that is not
// ready (57P03). An answer that ends the connection or the server proves nothing, because it may come after the commit: 57P (such as 57P01 of a server that shuts down), 08, and what
// PANIC also comes with (53100, 58, XX); nor does 40003, which says so itself. Whatever the driver says is safe to repeat was not sent. Where errors are joined, such as those of a commit and of the
// rollback after it, the one that proves least counts.
//
// sql.ErrNoRows, sql.ErrTxDone and errors that are none of the driver's are the caller's own, and are returned as they are.
func Classify(err error) error {
	found := assess(err)
	if found == nil {
		return err
	}
	if already, ok := err.(*budget.Error); ok && already == found { //nolint:errorlint // the outermost alone: it need not be wrapped again
		return err
	}
	whole := *found
	whole.Err = err
	return &whole
}

// assess looks through err from the outside, and is nil where nothing in it says what became of the statement.
func assess(err error) *budget.Error {
	for err != nil {
		if found, over := one(err); over {
			return found
		}
		switch e := err.(type) { //nolint:errorlint // one layer after the other
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			var worst *budget.Error
			for _, branch := range e.Unwrap() {
				if found := assess(branch); found != nil && (worst == nil || found.Class > worst.Class) {
					worst = found
				}
			}
			return worst
		default:
			return nil
		}
	}
	return nil
}

// one is what one layer of an error says; over is false where what it wraps is to be asked.
func one(err error) (found *budget.Error, over bool) {
	switch e := err.(type) { //nolint:errorlint // one layer after the other
	case *budget.Error:
		return e, true
	case interface{ SQLState() string }:
		return refusal(e.SQLState(), err), true
	case interface{ SafeToRetry() bool }:
		if e.SafeToRetry() {
			return &budget.Error{Class: budget.NotSent, Again: true, Err: err}, true
		}
	}
	switch err {
	case driver.ErrBadConn: //nolint:errorlint // one layer after the other: to be returned only where nothing was done
		return &budget.Error{Class: budget.NotSent, Again: true, Err: err}, true
	case sql.ErrNoRows, sql.ErrTxDone:
		return nil, true
	case sql.ErrConnDone, context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF, io.EOF, net.ErrClosed:
		return &budget.Error{Class: budget.Unknown, Phase: budget.PhaseAnswer, Err: err}, true
	}
	if _, ok := err.(net.Error); ok { //nolint:errorlint // one layer after the other
		e := &budget.Error{Class: budget.Unknown, Phase: budget.PhaseAnswer, Err: err}
		if op, ok := err.(*net.OpError); ok && op.Op == "write" { //nolint:errorlint // one layer after the other
			e.Phase = budget.PhaseSending
		}
		return e, true
	}
	return nil, false
}

func refusal(state string, err error) *budget.Error {
	e := &budget.Error{Class: budget.Refused, Err: err}
	switch {
	case state == "40003", state == "53100", hasAny(state, "08", "58", "XX"), state != "57P03" && hasAny(state, "57P"):
		e.Class, e.Phase = budget.Unknown, budget.PhaseAnswer
	case state == "57P03", state == "55P03", hasAny(state, "40", "53"):
		e.Again = true
	}
	return e
}

func hasAny(state string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(state, p) {
			return true
		}
	}
	return false
}
