package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// What appends, claims, settles and forgets is found by an index: no statement walks over what was delivered, over what is dead, or over a key's messages.
func TestMessagesAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	s := openPath(t, newPath(t))
	for statement, index := range map[string]string{
		everyTopic:       "tenure_message_due",
		namedTopics:      "tenure_message_due",
		selectLeads:      "tenure_message_due (topic=?",
		selectFollowers:  "tenure_message_chain (topic=? AND key=?",
		takeMessages:     "INTEGER PRIMARY KEY",
		buryMessages:     "INTEGER PRIMARY KEY",
		insertLost:       "INTEGER PRIMARY KEY",
		selectDeliveries: "INTEGER PRIMARY KEY",
		selectClaimed:    "INTEGER PRIMARY KEY",
		settleMessages:   "INTEGER PRIMARY KEY",
		returnMessages:   "INTEGER PRIMARY KEY",
		failMessage:      "INTEGER PRIMARY KEY",
		returnBehind:     "tenure_message_open (topic=? AND key=?",
		insertError:      "PRIMARY KEY",
		trimErrors:       "PRIMARY KEY",
		leadChains:       "INTEGER PRIMARY KEY",
		unleadChains:     "INTEGER PRIMARY KEY",
		selectKnown:      "sqlite_autoindex_tenure_message_1",
		insertMessage:    "tenure_message_chain (topic=? AND key=?",
		reviveAll:        "INTEGER PRIMARY KEY",
		selectChains:     "INTEGER PRIMARY KEY",
		selectForgotten:  "tenure_message_over (state=? AND at<?",
		stillForgotten:   "INTEGER PRIMARY KEY",
		raiseFloor:       "SEARCH tenure_message",
		positionOf:       "sqlite_autoindex_tenure_message_1",
		moveIDs:          "sqlite_autoindex_tenure_message_1",
		moveKey:          "tenure_message_key (key=?",
		moveNew:          "tenure_message_over (state=? AND at>?",
		fromKey:          "tenure_message_key (key=?",
		fromDead:         "tenure_message_over (state=?",
		insertNote:       "",
		selectNote:       "PRIMARY KEY (consumer=? AND message=?",
		pruneNotes:       "tenure_inbox_at (at<?",
	} {
		found := index == ""
		for _, step := range plan(t, s, statement) {
			found = found || strings.Contains(step, index)
			for _, table := range []string{"tenure_message", "m", "f", "d", "e", "l", "tenure_message_error", "tenure_message_body", "tenure_inbox"} {
				if (step == "SCAN "+table || strings.HasPrefix(step, "SCAN "+table+" ")) && !(strings.Contains(step, "tenure_message_due") && strings.HasPrefix(statement, "WITH")) {
					t.Errorf("%s\n\twalks over a table: %q", statement, step)
				}
			}
		}
		if !found {
			t.Errorf("%s\n\tis planned as %q, want %s", statement, plan(t, s, statement), index)
		}
	}
	for _, statement := range []string{fromPending, selectTopics} { // what is pending and dead is counted, and nothing else
		for _, step := range plan(t, s, statement) {
			if strings.HasPrefix(step, "SCAN tenure_message") && !strings.Contains(step, "INDEX tenure_message_") {
				t.Errorf("%s\n\twalks over a table: %q", statement, step)
			}
		}
	}
}

// B33: whatever stands behind the first message of a key that cannot be claimed is not looked at, and neither are messages of topics that are paused, or not asked for.
func TestClaimLooksAtFirstMessagesAlone(t *testing.T) {
	t.Parallel()
	const keys, behind = 20, 100
	s := openPath(t, newPath(t))
	p := &post{t: t, mail: s.Outbox()}
	for k := range keys {
		some := make([]outbox.Message, behind)
		for i := range some {
			some[i] = outbox.Message{Topic: "tickets", Key: fmt.Sprint("key ", k), Ordered: true}
		}
		p.append(some...)
	}
	p.append(outbox.Message{Topic: "paused"}, outbox.Message{Topic: "other"})
	if err := p.mail.Pause(t.Context(), outbox.PauseRequest{Topic: "paused", Paused: true}); err != nil {
		t.Fatal(err)
	}
	looked := func(req outbox.ClaimRequest) (statements int, taken int) {
		t.Helper()
		err := p.mail.read(t.Context(), "claim", func(b *mailBatch) error {
			counted := &countingConn{opConn: b.conn}
			b.conn = counted
			c, err := b.choose(&req)
			if err == nil {
				statements, taken = counted.n, len(c.taken)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return statements, taken
	}
	if n, taken := looked(mailClaim(0, 10)); n > 4 || taken != 10 {
		t.Errorf("ten of a key take %d statements, and are %d", n, taken)
	}
	for k := range keys { // all first ones
		req := mailClaim(k+1, 1)
		req.Topics = []string{"tickets"}
		if got, err := p.mail.Claim(t.Context(), req); err != nil || len(got.Deliveries) != 1 {
			t.Fatal(got, err)
		}
	}
	if n, taken := looked(mailClaim(100, 1000)); n > 3 || taken != 1 {
		t.Errorf("beside %d keys under live claims %d statements are taken, and %d messages are found", keys, n, taken)
	}
	var due int64
	err := p.mail.read(t.Context(), "await", func(b *mailBatch) error {
		req := mailClaim(0, 1)
		req.Topics = []string{"tickets"}
		c, err := b.choose(&req)
		due = c.next - b.now
		return err
	})
	if err != nil || due <= 0 || due > int64(time.Minute) {
		t.Errorf("the next is due in %v: %v", time.Duration(due), err)
	}
}

// countingConn counts the statements that run.
type countingConn struct {
	opConn
	n int
}

func (c *countingConn) query(text string, args ...any) (*sql.Rows, error) {
	c.n++
	return c.opConn.query(text, args...)
}
