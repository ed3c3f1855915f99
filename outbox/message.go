package outbox

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Limits that every store keeps.
const (
	MaxTopic       = 256     // bytes of a topic
	MaxKey         = 512     // bytes of a key
	MaxPayload     = 1 << 20 // bytes of a payload: what is larger belongs into a store of objects, and its address here
	MaxHeaders     = 64      // headers of one message
	MaxHeaderName  = 256     // bytes of a header's name
	MaxHeaderBytes = 16 << 10
	MaxAppend      = 1000 // messages of one Append
	MaxAppendBytes = 16 << 20
	MaxTopics      = 64 // topics that a claim names
	MaxBatch       = 1000
	MaxBatchBytes  = 16 << 20
	MaxRelay       = 256
	MinTTL         = 100 * time.Millisecond
	MaxTTL         = time.Hour
	MaxAttempts    = 1000
	MaxRetryIn     = 31 * 24 * time.Hour
	MaxError       = 1024 // bytes of an error that is kept: the rest is cut off
	KeptErrors     = 8    // newest errors that are kept of a message
	LostBefore     = 2    // after so many claims in a row that expired without a verdict, a message is handed out alone
	MaxReason      = 512
	MaxList        = 1000
	MaxMove        = 10_000 // messages of one Retry, Replay or Prune
	MinPruneAge    = time.Minute
)

// Message is what an application appends. It is a value; a store copies what it is given, and after a call its slices and maps are the caller's alone again.
type Message struct {
	// ID is what makes two deliveries one for the consumer. The zero value: Append chooses one.
	ID fence.ID

	Topic string // 1 to MaxTopic bytes of UTF-8 without control characters
	Key   string // 0 to MaxKey bytes, likewise: what a destination may partition by

	// Ordered: this message is published after every earlier ordered one of its topic and key, and while one of these is neither delivered nor dead it waits. It needs a key. Those who append to one
	// key do it one after the other, each until the other's transaction has ended; a key that everybody shares makes one queue of everything.
	Ordered bool

	Headers map[string]string // names 1 to MaxHeaderName bytes of UTF-8 without control characters, together at most MaxHeaderBytes with their values, which are UTF-8 without NUL
	Payload []byte            // 0 to MaxPayload bytes; what they mean is the application's
}

// State is how a message stands. The zero value is none.
type State int

// The states.
const (
	Pending   State = iota + 1 // to be published; some relay may be at it
	Delivered                  // the destination has acknowledged it
	Dead                       // given up, with its errors, until an operator retries it
)

// String is the state as texts, columns and JSON use it.
func (s State) String() string {
	if s < Pending || s > Dead {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return [...]string{"pending", "delivered", "dead"}[s-1]
}

// Delivery is a message that a relay has claimed.
type Delivery struct {
	Message
	Position int64         // the store's own number of the message, which nothing else has; within an ordered key it rises
	Attempt  int           // how often the message was handed out, this time included; what was returned untried is not counted
	Age      time.Duration // since it was appended
}

// Info is what is known of a message.
type Info struct {
	Message      // the payload and the headers only where they were asked for
	Bytes    int // of the payload
	Position int64
	State    State
	Attempts int
	Relay    string        // of the latest claim, if any
	Claimed  time.Duration // until the deadline of a live claim; 0: none
	DueIn    time.Duration // until it may be claimed, as far as only its own back-off counts; 0: now, or not pending
	Age      time.Duration // since it was appended
	Ended    time.Duration // since it was delivered or given up; 0 while pending
	Errors   []Failure     // the newest KeptErrors, oldest first
}

// Failure is why an attempt did not deliver.
type Failure struct {
	Attempt int
	Relay   string
	Text    string
	Age     time.Duration
}
