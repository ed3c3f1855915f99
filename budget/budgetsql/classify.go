// Package budgetsql says of a failed call to a database whether it was certainly not sent, was refused, or may have been done. It knows the errors of database/sql and, by
// the methods that they have, those of pgx, and imports no driver.
package budgetsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"

	"github.com/tenure-go/tenure/budget"
)

// Call takes a connection and uses it. Waiting for a connection of a pool and making one may time out as well as the statement can, and only in the second case may
// something have been done. acquire is the pool's own method, such as (*pgxpool.Pool).Acquire or (*sql.DB).Conn; use gives the connection back.
//
// It returns nil or a [*budget.Error]: [budget.NotSent] if no connection was got, else what [Classify] says.
func Call[C any](ctx context.Context, acquire func(context.Context) (C, error), use func(context.Context, C) error) error {
	conn, err := acquire(ctx)
	if err != nil {
		return &budget.Error{Class: budget.NotSent, Phase: budget.PhaseConnection, Again: true, Err: err}
	}
	return Classify(use(ctx, conn))
}

// Classify says what is known of a statement, or of a transaction that ended with err, as a [*budget.Error]; nil for nil.
//
// An error that the server answered with is a refusal: the statement, and the transaction that it stood in, was not applied. Those that another attempt may find otherwise
// are marked so: serialization failures and deadlocks (40), a lock that was not got (55P03), too little of something (53), a server that is not
// ready (57P03). An answer that ends the connection (FATAL, such as 57P01 of a server that shuts down) proves nothing: it may come after the commit. Whatever the driver says is safe to repeat was not sent.
// sql.ErrNoRows, sql.ErrTxDone and errors that are none of the driver's are the caller's own, and are returned as they are.
func Classify(err error) error {
	var known *budget.Error
	var safe interface{ SafeToRetry() bool }
	var answered interface{ SQLState() string }
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &answered):
		return refusal(answered.SQLState(), err)
	case errors.As(err, &safe) && safe.SafeToRetry(), errors.Is(err, driver.ErrBadConn): // database/sql: to be returned only where nothing was done
		return &budget.Error{Class: budget.NotSent, Again: true, Err: err}
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, sql.ErrTxDone):
		return err
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), lostAnswer(err):
		return &budget.Error{Class: budget.Unknown, Phase: budget.PhaseAnswer, Err: err}
	}
	return err
}

// lostAnswer reports whether a connection failed while its answer was waited for.
func lostAnswer(err error) bool {
	var net interface {
		Timeout() bool
		Temporary() bool
	}
	return errors.As(err, &net) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

func refusal(state string, err error) error {
	e := &budget.Error{Class: budget.Refused, Err: err}
	switch {
	case state == "57P03", strings.HasPrefix(state, "53"), strings.HasPrefix(state, "40"), state == "55P03":
		e.Again = true
	case strings.HasPrefix(state, "57P"), strings.HasPrefix(state, "08"):
		e.Class, e.Phase = budget.Unknown, budget.PhaseAnswer
	}
	return e
}
