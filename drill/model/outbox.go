package model

import "time"

// MailFacts is what is known of all rounds of a drill about messages: from the consumer's own tables, from the outbox, and from what the relays were told.
type MailFacts struct {
	Deliveries []Delivery    `json:"deliveries"` // in the order in which the consumer took them
	Effects    []MailEffect  `json:"effects"`
	States     []MailState   `json:"states"`
	Messages   []MailMessage `json:"messages"`
	Answers    []Answer      `json:"answers"` // of settlements: Element is the message, Token the attempt, Accepted whether it was recorded
	Events     []Event       `json:"events"`
}

// Delivery is one arrival of a message at the consumer.
type Delivery struct {
	Round    int           `json:"round"`
	Seq      int           `json:"seq"`
	Message  string        `json:"message"`
	ID       string        `json:"id"` // as it came
	Key      string        `json:"key"`
	Attempt  int           `json:"attempt"`
	Relay    string        `json:"relay"`
	Accepted bool          `json:"accepted"` // acknowledged; a repeated one is too
	At       time.Duration `json:"at"`       // by the clock that all processes of the machine share
}

// MailEffect is a row that the consumer wrote for a message.
type MailEffect struct {
	Round   int    `json:"round"`
	Message string `json:"message"`
}

// MailState is what the consumer holds of a key in the end: the value of the last message that had its effect.
type MailState struct {
	Round int    `json:"round"`
	Key   string `json:"key"`
	Value int    `json:"value"`
}

// MailMessage is a message as the outbox tells it in the end.
type MailMessage struct {
	Round    int      `json:"round"`
	Name     string   `json:"name"`
	ID       string   `json:"id"`
	Key      string   `json:"key"`
	Value    int      `json:"value"` // rises in the order in which the messages of a key were appended
	State    string   `json:"state"`
	Attempts int      `json:"attempts"`
	Relay    string   `json:"relay"` // of the latest claim
	Errors   []string `json:"errors"`
}

// The kinds of damage of a drill about messages.
const (
	EffectTwice Damage = "one message with two effects"
	MailLost    Damage = "delivered, and never arrived"            // the outbox says so, and the consumer has not had it
	OldOverNew  Damage = "an old value over a newer one"           // the consumer's value of a key is not that of the newest message
	AckedStale  Damage = "acknowledged by a claim that was over"   // and so what became of the claim that had followed is overwritten
	HeldUp      Damage = "held up behind a poison of another key"  // never tried, although nothing of its own key failed
	PassedOver  Damage = "published while an earlier one was open" // an ordered message, before an earlier one of its key was taken or given up
)

// MailDamages are all kinds, in the order of a report.
func MailDamages() []Damage {
	return []Damage{EffectTwice, MailLost, OldOverNew, AckedStale, HeldUp, PassedOver}
}

// MailWant is what each round of a variant must have come to.
type MailWant struct {
	Name string `json:"name"`
	// Damage must be seen in each round, which was played without what prevents it. Empty: there must be none, and all that follows is compared.
	Damage Damage `json:"damage,omitempty"`

	// What makes a round valid: the events that it must have, who said late what became of a message, and which messages were refused how often; without damage, once.
	Saw     []What         `json:"saw,omitempty"`
	Late    []string       `json:"late,omitempty"`
	Refused map[string]int `json:"refused,omitempty"`

	Deliveries []string          `json:"deliveries,omitempty"` // "A/1 first", "B/2 first refused": by relay and attempt, in order; none: whichever
	Messages   map[string]string `json:"messages,omitempty"`   // by name: the state, or state and attempts, "dead 3"
	Errors     map[string]string `json:"errors,omitempty"`     // by name: part of each error that is kept, of which there are some
	Told       map[string]string `json:"told,omitempty"`       // by relay: part of something that it was told
	Before     map[string]string `json:"before,omitempty"`     // the first arrived before the second was last refused
	After      map[string]string `json:"after,omitempty"`      // the first arrived only after the second was last refused
}

// MailDemand is what a drill about messages promised.
type MailDemand struct {
	Rounds   int        `json:"rounds"` // of each variant, that count
	Played   []PayRound `json:"played"`
	Variants []MailWant `json:"variants"`
}

// Mail is what a drill about messages came to.
type Mail struct {
	Deliveries int `json:"deliveries"` // arrivals at the consumer
	Repeated   int `json:"repeated"`   // of which had been acknowledged before
	Refused    int `json:"refused"`    // of which were not acknowledged
	Effects    int `json:"effects"`    // rows of the consumer's table
	Dead       int `json:"dead"`       // messages that were given up
	LateSent   int `json:"late_sent"`  // settlements of a claim that was over
	LateTaken  int `json:"late_taken"` // of which were recorded

	DamagedRounds int            `json:"damaged_rounds"`
	Damage        map[Damage]int `json:"damage"` // rounds with it, of each kind
	Variants      []MailVariant  `json:"variants"`
}

// MailVariant is what one variant came to.
type MailVariant struct {
	Name       string `json:"name"`
	Shows      string `json:"shows,omitempty"`
	Rounds     int    `json:"rounds"`
	Deliveries int    `json:"deliveries"`
	Effects    int    `json:"effects"`
	Damaged    int    `json:"damaged"`
	OK         bool   `json:"ok"`
}

// Judged is how many rounds were judged.
func (m *Mail) Judged() int {
	n := 0
	for _, v := range m.Variants {
		n += v.Rounds
	}
	return n
}
