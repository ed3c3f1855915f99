package sqlite

import (
	"database/sql"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// chain is what ordered messages share.
type chain struct{ topic, key string }

const (
	selectClaimed  = `SELECT m.position, m.claim, m.open, m.ordered, m.topic, m.key, m.attempts FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value`
	openOf         = ` WHERE position IN (SELECT value FROM json_each(?1)) AND claim = ?2 AND open = 1 AND state = 1`
	settleMessages = `UPDATE tenure_message SET state = 2, lead = 0, open = 0, lost = 0, at = ?3` + openOf
	returnMessages = `UPDATE tenure_message SET open = 0, lost = 0, attempts = attempts - 1, at = ?3` + openOf
	failMessage    = `UPDATE tenure_message SET state = ?3, lead = lead * (?3 = 1), open = 0, lost = 0, at = ?4 WHERE position = ?1 AND claim = ?2 AND open = 1 AND state = 1`
	// returnBehind gives back what is behind a message in its claim.
	returnBehind = `UPDATE tenure_message INDEXED BY tenure_message_open SET open = 0, lost = 0, attempts = attempts - 1, at = ?5
		WHERE topic = ?1 AND key = ?2 AND ordered = 1 AND open = 1 AND claim = ?3 AND position > ?4`
	insertError = `INSERT INTO tenure_message_error (position, n, attempt, relay, text, at)
		VALUES (?1, coalesce((SELECT max(n) FROM tenure_message_error WHERE position = ?1), 0) + 1, ?2, ?3, ?4, ?5)`
	trimErrors = `DELETE FROM tenure_message_error WHERE (position, n) IN (SELECT e.position, e.n FROM json_each(?1) j CROSS JOIN tenure_message_error e ON e.position = j.value
		WHERE e.n <= (SELECT max(l.n) FROM tenure_message_error l WHERE l.position = j.value) - ?2)`
	firstOfChain = `SELECT (SELECT m.position FROM tenure_message m INDEXED BY tenure_message_chain WHERE m.topic = j.value ->> 0 AND m.key = j.value ->> 1 AND m.ordered = 1 AND m.state = 1
		ORDER BY m.position LIMIT 1) FROM json_each(?1) j`
	leadChains   = `UPDATE tenure_message SET lead = 2 WHERE lead = 0 AND position IN (` + firstOfChain + `)`
	unleadChains = `UPDATE tenure_message SET lead = 0 WHERE lead = 2 AND position IN (` + firstOfChain + `)`
)

// claimedRow is what a verdict looks at.
type claimedRow struct {
	claim    fence.ID
	open     bool
	ordered  bool
	chain    chain
	attempts int
}

// settlement sorts the verdicts of a request that change something.
type settlement struct {
	*mailBatch
	req       *outbox.SettleRequest
	known     map[int64]claimedRow
	done      outbox.Settled
	published []int64
	returned  map[time.Duration][]int64 // by when they may be claimed again
	failed    []int64
	behind    map[chain]int64 // the first of each key that was not published
	left      map[chain]bool  // keys of which something is not pending any more
}

func (b *mailBatch) settle(req *outbox.SettleRequest) (outbox.Settled, error) {
	known, err := b.claimedOf(req)
	if err != nil {
		return outbox.Settled{}, err
	}
	s := &settlement{mailBatch: b, req: req, known: known, returned: map[time.Duration][]int64{}, behind: map[chain]int64{}, left: map[chain]bool{}}
	for i := range req.Verdicts {
		if err := s.verdict(&req.Verdicts[i]); err != nil {
			return outbox.Settled{}, err
		}
	}
	slices.Sort(s.done.Late)
	return s.done, s.save()
}

func (b *mailBatch) claimedOf(req *outbox.SettleRequest) (map[int64]claimedRow, error) {
	positions := make([]int64, len(req.Verdicts))
	for i := range req.Verdicts {
		positions[i] = req.Verdicts[i].Position
	}
	list, err := listOf(b.txWork, positions)
	if err != nil {
		return nil, err
	}
	known := make(map[int64]claimedRow, len(positions))
	err = b.each(func(rows *sql.Rows) error {
		var position int64
		var r claimedRow
		var claim []byte
		err := rows.Scan(&position, &claim, &r.open, &r.ordered, &r.chain.topic, &r.chain.key, &r.attempts)
		r.claim = asID(claim)
		known[position] = r
		return err
	}, selectClaimed, list)
	return known, err
}

// verdict looks at one, and writes only the failed ones, each of which has its own error.
func (s *settlement) verdict(v *outbox.Verdict) error {
	r, found := s.known[v.Position]
	if !found || r.claim != s.req.Claim {
		s.done.Late = append(s.done.Late, v.Position)
		return nil
	}
	if s.done.Applied++; !r.open {
		return nil // it was recorded under this claim already
	}
	ended := v.Outcome == outbox.Published || v.Dead
	if r.ordered && ended {
		s.left[r.chain] = true
	}
	if r.ordered && v.Outcome != outbox.Published {
		if first, known := s.behind[r.chain]; !known || v.Position < first {
			s.behind[r.chain] = v.Position
		}
	}
	switch v.Outcome {
	case outbox.Published:
		s.published = append(s.published, v.Position)
	case outbox.Returned:
		s.returned[v.RetryIn] = append(s.returned[v.RetryIn], v.Position)
	case outbox.Failed:
		s.failed = append(s.failed, v.Position)
		if err := s.one(insertError, v.Position, r.attempts, s.req.Relay, outbox.Text(v.Error), s.now); err != nil {
			return err
		}
		state, at := outbox.Pending, s.now+int64(v.RetryIn)
		if v.Dead {
			state, at = outbox.Dead, s.now
		}
		return s.one(failMessage, v.Position, s.req.Claim[:], int(state), at)
	}
	return nil
}

// save writes the rest. What is behind in its key comes after all that has a verdict of its own.
func (s *settlement) save() error {
	if err := s.all(settleMessages, s.published, s.req.Claim[:], s.now); err != nil {
		return err
	}
	for in, positions := range s.returned {
		if err := s.all(returnMessages, positions, s.req.Claim[:], s.now+int64(in)); err != nil {
			return err
		}
	}
	for c, first := range s.behind {
		if _, err := s.exec(returnBehind, c.topic, c.key, s.req.Claim[:], first, s.now); err != nil {
			return err
		}
	}
	if err := s.trim(s.failed); err != nil {
		return err
	}
	chains := make([]chain, 0, len(s.left))
	for c := range s.left {
		chains = append(chains, c)
	}
	return s.lead(chains)
}

// trim forgets the errors that are too many, of messages that have got one.
func (b *mailBatch) trim(positions []int64) error {
	if len(positions) == 0 {
		return nil
	}
	list, err := listOf(b.txWork, positions)
	if err == nil {
		_, err = b.exec(trimErrors, list, outbox.KeptErrors)
	}
	return err
}

// lead makes the first pending message of each key the one that is found as due.
func (b *mailBatch) lead(chains []chain) error { return b.move(leadChains, chains) }

// unlead makes that no message of the keys is found as due, until lead is called.
func (b *mailBatch) unlead(chains []chain) error { return b.move(unleadChains, chains) }

func (b *mailBatch) move(text string, chains []chain) error {
	if len(chains) == 0 {
		return nil
	}
	pairs := make([][2]string, len(chains))
	for i, c := range chains {
		pairs[i] = [2]string{c.topic, c.key}
	}
	list, err := listOf(b.txWork, pairs)
	if err == nil {
		_, err = b.exec(text, list)
	}
	return err
}
