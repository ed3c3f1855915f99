package sqlite

import (
	"cmp"
	"container/heap"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

// letter is what a claim looks at of a message.
type letter struct {
	position, at   int64
	lead           int
	topic, key     string
	open           bool
	attempts, lost int
	size           int64
	more           bool // of the first of a key: others are behind it
	blocked        bool // of the first of a key: one of them is under a live claim
}

const leadUnordered = 1

const (
	selectPaused = `SELECT topic FROM tenure_paused`
	// everyTopic goes from topic to topic by the index, and namedTopics to those of a list. Each comes with when its first message is due.
	everyTopic = `WITH RECURSIVE t(topic) AS (SELECT (SELECT topic FROM tenure_message INDEXED BY tenure_message_due WHERE lead > 0 ORDER BY topic LIMIT 1)
		UNION ALL SELECT (SELECT m.topic FROM tenure_message m INDEXED BY tenure_message_due WHERE m.lead > 0 AND m.topic > t.topic ORDER BY m.topic LIMIT 1) FROM t WHERE t.topic IS NOT NULL)
		SELECT topic, (SELECT m.at` + firstDue + `m.topic = t.topic ORDER BY m.at LIMIT 1) FROM t WHERE topic IS NOT NULL`
	namedTopics = `SELECT value, (SELECT m.at` + firstDue + `m.topic = j.value ORDER BY m.at LIMIT 1) FROM json_each(?1) j`
	firstDue    = ` FROM tenure_message m INDEXED BY tenure_message_due WHERE m.lead > 0 AND `
	// selectLeads are a topic's, after one by (at, position).
	selectLeads = `SELECT m.position, m.at, m.lead, m.key, m.open, m.attempts, m.lost, m.size,
		m.lead = 2 AND EXISTS (SELECT 1 FROM tenure_message f INDEXED BY tenure_message_chain WHERE f.topic = m.topic AND f.key = m.key AND f.ordered = 1 AND f.state = 1 AND f.position > m.position),
		m.lead = 2 AND EXISTS (SELECT 1 FROM tenure_message f INDEXED BY tenure_message_open WHERE f.topic = m.topic AND f.key = m.key AND f.ordered = 1 AND f.open = 1 AND f.at > ?2)` + firstDue +
		`m.topic = ?1 AND m.at <= ?2 AND (m.at, m.position) > (?3, ?4) ORDER BY m.at, m.position LIMIT ?5`
	selectFollowers = `SELECT position, at, open, attempts, lost, size FROM tenure_message INDEXED BY tenure_message_chain
		WHERE topic = ?1 AND key = ?2 AND ordered = 1 AND state = 1 AND position > ?3 ORDER BY position LIMIT ?4`
)

// lane is a topic with something due, which comes in the order in which it became so.
type lane struct {
	topic string
	at    int64 // of what comes next
	first int64 // its position; 0: nothing was read yet
	next  []letter
	last  letter // of those that were read
	done  bool   // nothing is left to be read
}

// lanes are in the order of what comes next in them, as container/heap has it.
type lanes []*lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].at, l[j].at), cmp.Compare(l[i].first, l[j].first)) < 0
}
func (l lanes) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lanes) Push(x any)   { *l = append(*l, x.(*lane)) }
func (l *lanes) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// choice is what a claim takes, and what it gives up because it was handed out too often.
type choice struct {
	*mailBatch
	req    *outbox.ClaimRequest
	taken  []letter
	buried []letter
	size   int64
	full   bool
	next   int64 // when the first topic of which nothing is due yet has something due; 0: never
}

// choose decides, and only reads: what is due, the longest first. The topics of the request are different ones.
func (b *mailBatch) choose(req *outbox.ClaimRequest) (*choice, error) {
	c := &choice{mailBatch: b, req: req}
	due, err := c.lanes()
	if err != nil {
		return nil, err
	}
	heap.Init(&due)
	some := max(leadsAtOnce, 2*req.Limit/max(1, len(due)))
	for len(due) > 0 && !c.full {
		l := due[0]
		if len(l.next) == 0 {
			if err := c.load(l, some); err != nil {
				return nil, err
			}
		}
		if len(l.next) == 0 {
			heap.Pop(&due)
			continue
		}
		m := l.next[0]
		if m.at != l.at || m.position != l.first { // others may come before it
			l.at, l.first = m.at, m.position
			heap.Fix(&due, 0)
			continue
		}
		l.next = l.next[1:]
		if m.lead == leadUnordered {
			c.consider(m)
		} else if err := c.chain(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// leadsAtOnce is how many messages of a topic are read at once, at least.
const leadsAtOnce = 32

// lanes are the topics that the claim is about.
func (c *choice) lanes() (lanes, error) {
	paused := map[string]bool{}
	err := c.each(func(rows *sql.Rows) error {
		var topic string
		err := rows.Scan(&topic)
		paused[topic] = true
		return err
	}, selectPaused)
	if err != nil || paused[""] {
		return nil, err
	}
	var due lanes
	scan := func(rows *sql.Rows) error {
		var topic string
		var at sql.NullInt64
		err := rows.Scan(&topic, &at)
		switch {
		case err != nil || paused[topic] || !at.Valid:
		case at.Int64 <= c.now:
			due = append(due, &lane{topic: strings.Clone(topic), at: at.Int64})
		case c.next == 0 || at.Int64 < c.next:
			c.next = at.Int64
		}
		return err
	}
	if len(c.req.Topics) == 0 {
		return due, c.each(scan, everyTopic)
	}
	list, err := listOf(c.txWork, c.req.Topics)
	if err != nil {
		return nil, err
	}
	err = c.each(scan, namedTopics, list)
	return due, err
}

// load reads what comes next in the lane, if there is any.
func (c *choice) load(l *lane, some int) error {
	if l.done {
		return nil
	}
	from := l.last
	if from.position == 0 {
		from.at = l.at - 1
	}
	err := c.each(func(rows *sql.Rows) error {
		m := letter{topic: l.topic}
		err := rows.Scan(&m.position, &m.at, &m.lead, &m.key, &m.open, &m.attempts, &m.lost, &m.size, &m.more, &m.blocked)
		l.next = append(l.next, m)
		return err
	}, selectLeads, l.topic, c.now, from.at, from.position, some)
	if err != nil {
		return err
	}
	if l.done = len(l.next) < some; len(l.next) > 0 {
		l.last = l.next[len(l.next)-1]
	}
	return nil
}

// consider takes the message, or gives it up, or neither, and reports whether those of its key that follow may be taken. It is due.
func (c *choice) consider(m letter) bool {
	if m.attempts >= c.req.MaxAttempts {
		c.buried = append(c.buried, m)
		c.full = len(c.buried) >= outbox.MaxBatch
		return true
	}
	lost := m.lost
	if m.open {
		lost++ // it has expired
	}
	suspect := lost >= outbox.LostBefore
	if suspect && len(c.taken) > 0 {
		return false
	}
	if c.size+m.size > int64(c.req.Bytes) && len(c.taken) > 0 {
		c.full = true
		return false
	}
	c.taken = append(c.taken, m)
	c.size += m.size
	c.full = suspect || len(c.taken) >= c.req.Limit
	return true
}

// chain takes the first message of a key, and what may follow it.
func (c *choice) chain(m letter) error {
	if m.blocked || !c.consider(m) || !m.more {
		return nil
	}
	for after := m.position; !c.full; {
		some := min(c.req.Limit-len(c.taken), followersAtOnce)
		var found []letter
		err := c.each(func(rows *sql.Rows) error {
			f := letter{topic: m.topic, key: m.key}
			err := rows.Scan(&f.position, &f.at, &f.open, &f.attempts, &f.lost, &f.size)
			found = append(found, f)
			return err
		}, selectFollowers, m.topic, m.key, after, some)
		if err != nil {
			return err
		}
		for _, f := range found {
			if c.full || f.at > c.now || !c.consider(f) {
				return nil
			}
		}
		if len(found) < some {
			return nil
		}
		after = found[len(found)-1].position
	}
	return nil
}

// followersAtOnce is how many messages of a key are read at once, at most.
const followersAtOnce = 256

const (
	takeMessages = `UPDATE tenure_message SET claim = ?2, relay = ?3, at = ?4, lost = lost + open, attempts = attempts + 1, open = 1
		WHERE position IN (SELECT value FROM json_each(?1)) AND state = 1 AND at <= ?5`
	buryMessages = `UPDATE tenure_message SET state = 3, lead = 0, at = ?2, lost = lost + open, open = 0, claim = x'' WHERE position IN (SELECT value FROM json_each(?1)) AND state = 1 AND at <= ?2`
	// insertLost records that claims have expired without a verdict.
	insertLost = `INSERT INTO tenure_message_error (position, n, attempt, relay, text, at)
		SELECT m.position, coalesce((SELECT max(e.n) FROM tenure_message_error e WHERE e.position = m.position), 0) + 1, m.attempts, m.relay, ?2, ?3
		FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value WHERE m.open = 1`
	selectDeliveries = `SELECT m.position, m.id, m.topic, m.key, m.ordered, m.appended, coalesce(d.headers, ''), coalesce(d.payload, x'')
		FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value LEFT JOIN tenure_message_body d ON d.position = m.position ORDER BY m.position`
)

// claim takes what there is for the relay.
func (b *mailBatch) claim(req *outbox.ClaimRequest) (taken []letter, dead int, err error) {
	c, err := b.choose(req)
	if err != nil {
		return nil, 0, err
	}
	if err := b.notice(c.taken, c.buried); err != nil {
		return nil, 0, err
	}
	if err := b.all(takeMessages, positionsOf(c.taken), req.Claim[:], req.Relay, b.now+int64(req.TTL), b.now); err != nil {
		return nil, 0, err
	}
	if err := b.all(buryMessages, positionsOf(c.buried), b.now); err != nil {
		return nil, 0, err
	}
	var chains []chain
	for _, m := range c.buried {
		if m.lead != leadUnordered {
			chains = append(chains, chain{m.topic, m.key})
		}
	}
	return c.taken, len(c.buried), b.lead(chains)
}

// notice records the claims that have expired without a verdict.
func (b *mailBatch) notice(all ...[]letter) error {
	var lost []int64
	for _, letters := range all {
		for _, m := range letters {
			if m.open {
				lost = append(lost, m.position)
			}
		}
	}
	if err := b.all(insertLost, lost, outbox.Expired, b.now); err != nil {
		return err
	}
	return b.trim(lost)
}

func positionsOf(letters []letter) []int64 {
	positions := make([]int64, len(letters))
	for i := range letters {
		positions[i] = letters[i].position
	}
	return positions
}

// deliveries reads what was taken, in the order of the positions. What is gone by now is left out: somebody else has delivered it since, and it was forgotten.
func (b *mailBatch) deliveries(taken []letter) ([]outbox.Delivery, error) {
	attempts := make(map[int64]int, len(taken))
	for _, m := range taken {
		attempts[m.position] = m.attempts + 1
	}
	list, err := listOf(b.txWork, positionsOf(taken))
	if err != nil {
		return nil, err
	}
	found := make([]outbox.Delivery, 0, len(taken))
	err = b.each(func(rows *sql.Rows) error {
		var d outbox.Delivery
		var id []byte
		var appended int64
		var headers string
		err := rows.Scan(&d.Position, &id, &d.Topic, &d.Key, &d.Ordered, &appended, &headers, &d.Payload)
		if err == nil {
			d.Headers, err = asHeaders(headers)
		}
		d.ID, d.Attempt, d.Age = asID(id), attempts[d.Position], time.Duration(max(0, b.now-appended))
		found = append(found, d)
		return err
	}, selectDeliveries, list)
	return slices.Clip(found), err
}
