package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/lease"
)

// SQLSTATEs of the functions of holds.
const (
	stateTaken        = "TN030"
	stateLimit        = "TN031"
	stateHoldMismatch = "TN032"
	stateActor        = "TN033"
	stateHoldOver     = "TN034"
	stateHoldUnknown  = "TN035"
)

// holdFacts is the detail of their errors.
type holdFacts struct {
	Field, ID, What, State, Name, Item, Actor string
	Wanted, Free, Most, Live                  int64
	NextUS                                    *int64 `json:"next_us"`
}

// holdRefused is the error of package hold that the server has answered with about the hold id, or nil. Nothing was changed. It goes by SQLSTATE, never by text.
func holdRefused(id fence.ID, actor string, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	var facts holdFacts
	switch pg.Code {
	case stateInvalid, stateTaken, stateLimit, stateHoldMismatch, stateActor, stateHoldOver, stateHoldUnknown:
		if bad := json.Unmarshal([]byte(pg.Detail), &facts); bad != nil {
			return fmt.Errorf("%w; its detail is not of this version of the schema: %w", err, bad)
		}
	}
	switch pg.Code {
	case stateInvalid:
		return &hold.InvalidError{Field: facts.Field, Problem: strings.TrimPrefix(pg.Message, "invalid "+facts.Field+": ")}
	case stateTaken:
		taken := &hold.TakenError{Item: facts.Item, Wanted: facts.Wanted, Free: facts.Free}
		if facts.NextUS != nil {
			taken.Next = time.Duration(*facts.NextUS) * time.Microsecond
		}
		return taken
	case stateLimit:
		return &hold.LimitError{Actor: facts.Actor, What: facts.What, Most: facts.Most, Live: facts.Live}
	case stateHoldMismatch:
		return &hold.MismatchError{ID: id, What: facts.What}
	case stateActor:
		return &hold.ActorError{ID: id, Actor: actor}
	case stateHoldOver:
		return &hold.OverError{ID: id, State: named(facts.State, hold.Held, hold.Late), What: facts.What}
	case stateHoldUnknown:
		return &hold.NotFoundError{What: facts.What, Name: facts.Name}
	}
	return nil
}

// holdFailed translates an error of the request op about id: what the server refused, certainly not applied, or unknown. sent is false where no statement can have been sent.
func (s *Store) holdFailed(op string, id fence.ID, actor string, sent bool, err error) error {
	var unsent *lease.UnavailableError
	var unknown *lease.UnknownError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsent): // there was no connection, or no turn
		return &hold.UnavailableError{Op: op, Err: unsent.Err}
	case errors.As(err, &unknown):
		return &hold.UnknownError{Op: op, ID: id, Err: unknown.Err}
	}
	if refused := holdRefused(id, actor, err); refused != nil {
		return refused
	}
	err = hinted(op, err)
	if !sent || pgconn.SafeToRetry(err) || refusedByServer(err) {
		return &hold.UnavailableError{Op: op, Err: err}
	}
	return &hold.UnknownError{Op: op, ID: id, Err: err}
}

// holdTxError translates an error in a transaction of the caller's own.
func holdTxError(id fence.ID, actor string, err error) error {
	if err == nil {
		return nil
	}
	if refused := holdRefused(id, actor, err); refused != nil {
		return refused
	}
	switch state(err) {
	case stateSerialization, stateDeadlock, stateBeginAgain:
		return fmt.Errorf("%w: %w; nothing was written; roll back and begin the transaction again", ErrBeginAgain, err)
	}
	return err
}
