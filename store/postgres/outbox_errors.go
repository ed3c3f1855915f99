package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// SQLSTATEs of the functions of messages.
const (
	stateOutboxMismatch = "TN040"
	stateOutboxUnknown  = "TN041"
)

// Calls that take tenure_operator, as they stand in errors.
const (
	opPause  = "pause"
	opRetry  = "retry"
	opReplay = "replay"
)

// outboxRefused is the error of package outbox that the server has answered with, or nil. Nothing was changed. It goes by SQLSTATE, never by text.
func outboxRefused(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	var facts struct {
		Field, What string
		ID          fence.ID
	}
	switch pg.Code {
	case stateInvalid, stateOutboxMismatch, stateOutboxUnknown:
		if bad := json.Unmarshal([]byte(pg.Detail), &facts); bad != nil {
			return fmt.Errorf("%w; its detail is not of this version of the schema: %w", err, bad)
		}
	}
	switch pg.Code {
	case stateInvalid:
		return &outbox.InvalidError{Field: facts.Field, Problem: strings.TrimPrefix(pg.Message, "invalid "+facts.Field+": ")}
	case stateOutboxMismatch:
		return &outbox.MismatchError{ID: facts.ID, What: facts.What}
	case stateOutboxUnknown:
		return &outbox.NotFoundError{ID: facts.ID}
	}
	return nil
}

// outboxFailed translates an error of the request op: what the server refused, certainly not applied, or unknown. sent is false where no statement can have been sent.
func (s *Store) outboxFailed(op string, _ fence.ID, sent bool, err error) error {
	var unsent *lease.UnavailableError
	var unknown *lease.UnknownError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsent): // there was no connection, or no turn
		return &outbox.UnavailableError{Op: op, Err: unsent.Err}
	case errors.As(err, &unknown):
		return &outbox.UnknownError{Op: op, Err: unknown.Err}
	}
	if refused := outboxRefused(err); refused != nil {
		return refused
	}
	err = hinted(op, err)
	if !sent || pgconn.SafeToRetry(err) || refusedByServer(err) {
		return &outbox.UnavailableError{Op: op, Err: err}
	}
	return &outbox.UnknownError{Op: op, Err: err}
}

// outboxTxError translates an error in a transaction of the caller's own.
func outboxTxError(err error) error {
	if refused := outboxRefused(err); refused != nil {
		return refused
	}
	return beginAgain(err)
}

// beginAgain tells what is to be begun again.
func beginAgain(err error) error {
	switch state(err) {
	case stateSerialization, stateDeadlock, stateBeginAgain:
		return fmt.Errorf("%w: %w; nothing was written; roll back and begin the transaction again", ErrBeginAgain, err)
	}
	return err
}
