package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// SQLSTATEs of the functions of operations.
const (
	stateMismatch  = "TN020"
	stateDecided   = "TN021"
	stateUndecided = "TN022"
	stateStale     = "TN023"
	stateNotFound  = "TN024"
)

// opRefused is the error of package operation that the server has answered with, or nil. Nothing was changed. It goes by SQLSTATE, never by text.
func opRefused(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	var facts struct{ ID, What, State, Attempt, Newer, Field string }
	switch pg.Code {
	case stateInvalid, stateMismatch, stateDecided, stateUndecided, stateStale, stateNotFound:
		if bad := json.Unmarshal([]byte(pg.Detail), &facts); bad != nil {
			return fmt.Errorf("%w; its detail is not of this version of the schema: %w", err, bad)
		}
	}
	switch pg.Code {
	case stateInvalid:
		return &operation.InvalidError{Field: facts.Field, Problem: strings.TrimPrefix(pg.Message, "invalid "+facts.Field+": ")}
	case stateMismatch:
		return &operation.MismatchError{ID: facts.ID, What: facts.What}
	case stateDecided:
		return &operation.StateError{Kind: operation.ErrDecided, ID: facts.ID, State: stateOf(facts.State), What: facts.What}
	case stateUndecided:
		return &operation.StateError{Kind: operation.ErrUndecided, ID: facts.ID, State: stateOf(facts.State), What: facts.What}
	case stateStale:
		return &operation.StaleError{ID: facts.ID, Attempt: tokenOf(facts.Attempt), Newer: tokenOf(facts.Newer), State: stateOf(facts.State)}
	case stateNotFound:
		return &operation.NotFoundError{ID: facts.ID}
	}
	return nil
}

// opFailed translates an error of the request op about id: what the server refused, certainly not applied, or unknown. sent is false where no statement can have been sent.
func (s *Store) opFailed(op, id string, sent bool, err error) error {
	var unsent *lease.UnavailableError
	var unknown *lease.UnknownError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsent): // there was no connection, or no turn
		return &operation.UnavailableError{Op: op, Err: unsent.Err}
	case errors.As(err, &unknown):
		return &operation.UnknownError{Op: op, ID: id, Err: unknown.Err}
	}
	if refused := opRefused(err); refused != nil {
		return refused
	}
	err = hinted(op, err)
	if !sent || readsOnly(op) || pgconn.SafeToRetry(err) || refusedByServer(err) {
		return &operation.UnavailableError{Op: op, Err: err}
	}
	return &operation.UnknownError{Op: op, ID: id, Err: err}
}

// readsOnly reports whether a call changes nothing, so that nothing about it is unknown.
func readsOnly(op string) bool { return op == "get" || op == "list" || op == "stats" }

// opTxError translates an error in a transaction of the caller's own.
func opTxError(err error) error {
	if err == nil {
		return nil
	}
	if refused := opRefused(err); refused != nil {
		return refused
	}
	switch state(err) {
	case stateSerialization, stateDeadlock, stateBeginAgain:
		return fmt.Errorf("%w: %w; nothing was written; roll back and begin the transaction again", ErrBeginAgain, err)
	}
	return err
}
