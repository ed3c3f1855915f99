package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Codes of results, as the schema's functions give them.
const (
	codeDone        = 0
	codeHeld        = 1
	codeOver        = 2 // the session
	codeEnded       = 3 // the acquisition
	codeMismatch    = 4
	codeAhead       = 5
	codeAgain       = 6
	codeIncarnation = 7
	codeLocked      = 8
	codeAbsent      = 9

	codeAlready = 1 // of a release or revocation
)

func codeOf(code *int16) int {
	if code == nil {
		return codeAgain
	}
	return int(*code)
}

func endOf(how *int16) lease.End {
	if how == nil {
		return lease.EndForgotten
	}
	return lease.End(*how)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func uuid(id fence.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// interval is NULL for 0.
func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: d > 0}
}

// duration of a difference between two instants, which has no months. NULL is 0.
func duration(i pgtype.Interval) time.Duration {
	return time.Duration(i.Microseconds)*time.Microsecond + time.Duration(i.Days)*24*time.Hour
}

// grantRow is tenure.grant_row.
type grantRow struct {
	o                   int32
	code, how           int16
	token               *int64
	remaining, holdLeft pgtype.Interval
	what                *string
	place               pgtype.TID // of a grant by acquire_many
}

func (r *grantRow) dest() []any {
	return []any{&r.o, &r.code, &r.how, &r.token, &r.remaining, &r.holdLeft, &r.what}
}

// grantColumns of a function that returns tenure.grant_row.
const grantColumns = `SELECT o, code, how, token, remaining, hold_left, what FROM `

// batchRow is the result of tenure.acquire_many: what it granted, and what it refused as held.
type batchRow struct {
	os         []int32
	tokens     []int64
	holdLefts  []pgtype.Interval
	remaining  pgtype.Interval
	heldOs     []int32
	heldTokens []int64
	heldLefts  []pgtype.Interval
	heldOwners []string
	unbroken   pgtype.UUID
	places     []pgtype.TID
}

const batchColumns = `SELECT os, tokens, hold_lefts, remaining, held_os, held_tokens, held_lefts, held_owners, unbroken, places FROM `

func (r *batchRow) dest() []any {
	return []any{&r.os, &r.tokens, &r.holdLefts, &r.remaining, &r.heldOs, &r.heldTokens, &r.heldLefts, &r.heldOwners, &r.unbroken, &r.places}
}

// deal gives each call its answer, where there is one.
func (r *batchRow) deal(batch []*call) {
	for i, o := range r.os {
		row := &grantRow{o: 1, code: codeDone, token: &r.tokens[i], remaining: r.remaining, place: r.places[i]}
		if len(r.holdLefts) > 0 {
			row.holdLeft = r.holdLefts[i]
		}
		batch[o-1].grant = row
	}
	for i, o := range r.heldOs {
		batch[o-1].grant = &grantRow{o: 1, code: codeHeld, token: &r.heldTokens[i], remaining: r.heldLefts[i], what: &r.heldOwners[i]}
	}
}
