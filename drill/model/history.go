package model

import (
	"time"

	"github.com/tenure-go/tenure/fence"
)

// History is what a resource tells: its log, its content, its answers, and what the processes saw that used it.
type History struct {
	Writes  []Write          `json:"writes"`  // accepted, in the order in which the resource accepted them
	Answers []Answer         `json:"answers"` // in the order in which they were recorded
	Events  []Event          `json:"events"`
	Content map[int][]string `json:"content"` // by round: what is read in the end
}

// Write is one row of the resource's log, written in the transaction that changed the value.
type Write struct {
	Round   int         `json:"round"`
	Writer  string      `json:"writer"`
	Element string      `json:"element"` // what it added; unique in its round
	Token   fence.Token `json:"token"`
	Content []string    `json:"content"` // of the value, after it
}

// Answer is what a writer was told, recorded in a transaction of its own after the write's had ended.
type Answer struct {
	Round    int         `json:"round"`
	Writer   string      `json:"writer"`
	Element  string      `json:"element"`
	Token    fence.Token `json:"token"`
	Late     bool        `json:"late"`   // the writer meant it as a late one
	Unsent   bool        `json:"unsent"` // the client refused it: it never reached the resource
	Accepted bool        `json:"accepted"`
	Newer    fence.Token `json:"newer"` // the newer token that the refusal named, or 0
	Why      string      `json:"why"`   // of a refusal
}

// Event is what a process saw, by the clock that all processes of the machine share.
type Event struct {
	Round int           `json:"round"`
	Token fence.Token   `json:"token"`
	What  What          `json:"what"`
	At    time.Duration `json:"at"` // nanoseconds since an origin of the machine
}

// What is a kind of [Event].
type What string

// The kinds of events.
const (
	Granted  What = "granted"  // the reply with the grant was in the hands of the owner
	HeldTill What = "held"     // by the last answer of the authority, nobody else may be granted before
	Worked   What = "worked"   // the owner's work had not returned, so it had released nothing
	Believed What = "believed" // the owner's context ended: it no longer believed to hold
)
