package model

// SaleFacts is what is known of all rounds of a drill about holds: from the business's own table of sales, from the store of holds, and from what the sellers were told.
type SaleFacts struct {
	Sales   []SaleRow  `json:"sales"`
	Holds   []SaleHold `json:"holds"`
	Items   []SaleItem `json:"items"`
	Answers []Answer   `json:"answers"` // Element is the reference, Accepted whether the seller wrote a sale
	Events  []Event    `json:"events"`
}

// SaleRow is a row of the business's table.
type SaleRow struct {
	Round     int    `json:"round"`
	Hold      string `json:"hold"`
	Buyer     string `json:"buyer"`
	Reference string `json:"reference"`
}

// SaleHold is a hold as the store tells it in the end.
type SaleHold struct {
	Round     int    `json:"round"`
	ID        string `json:"id"`
	Actor     string `json:"actor"`
	State     string `json:"state"`
	Reference string `json:"reference"`
}

// SaleItem is the seat of a round, as the store tells it in the end.
type SaleItem struct {
	Round int   `json:"round"`
	Sold  int64 `json:"sold"`
}

// The kinds of damage of a drill about holds.
const (
	SoldTwice  Damage = "one seat sold twice"        // to two buyers, or for two payments
	SaleTwice  Damage = "one sale written twice"     // for one payment
	SoldUnheld Damage = "sold without its hold"      // a sale whose hold is not confirmed under its reference
	Unwritten  Damage = "confirmed without its sale" // a hold that is confirmed, and no sale
)

// SaleDamages are all kinds, in the order of a report.
func SaleDamages() []Damage { return []Damage{SoldTwice, SaleTwice, SoldUnheld, Unwritten} }

// SaleWant is what each round of a variant must have come to.
type SaleWant struct {
	Name string `json:"name"`
	// Damage must be seen in each round, which was played on a table of holds of the application's own. Empty: there must be none, and all that follows is compared.
	Damage Damage `json:"damage,omitempty"`

	// What makes a round valid: the events that it must have, and who sent what late.
	Saw  []What   `json:"saw,omitempty"`
	Late []string `json:"late,omitempty"` // the writers

	Buyer string            `json:"buyer,omitempty"` // of the one sale
	Paid  string            `json:"paid,omitempty"`  // its reference
	Holds map[string]string `json:"holds,omitempty"` // by actor: state and reference, "late charge-A"
	Told  map[string]string `json:"told,omitempty"`  // by writer: part of something that it was told
}

// SaleDemand is what a drill about holds promised.
type SaleDemand struct {
	Rounds   int        `json:"rounds"` // of each variant, that count
	Played   []PayRound `json:"played"`
	Variants []SaleWant `json:"variants"`
}

// Sales is what a drill about holds came to.
type Sales struct {
	Sales     int `json:"sales"` // rows of the business's table
	Confirmed int `json:"confirmed"`
	Late      int `json:"late"`         // holds that a payment came for too late
	LateSent  int `json:"late_sent"`    // sales that were sent late
	LateSold  int `json:"late_written"` // of which wrote a sale

	DamagedRounds int            `json:"damaged_rounds"`
	Damage        map[Damage]int `json:"damage"` // rounds with it, of each kind
	Variants      []SaleVariant  `json:"variants"`
}

// SaleVariant is what one variant came to.
type SaleVariant struct {
	Name    string `json:"name"`
	Shows   string `json:"shows,omitempty"`
	Rounds  int    `json:"rounds"`
	Sales   int    `json:"sales"`
	Damaged int    `json:"damaged"`
	OK      bool   `json:"ok"`
}

// Judged is how many rounds were judged.
func (s *Sales) Judged() int {
	n := 0
	for _, v := range s.Variants {
		n += v.Rounds
	}
	return n
}
