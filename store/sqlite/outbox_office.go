package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

const (
	infoOf      = `SELECT m.position, m.id, m.topic, m.key, m.ordered, m.state, m.open, m.at, m.attempts, m.relay, m.size, m.appended`
	selectInfos = infoOf + ` FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value ORDER BY m.position`
	errorsOf    = `SELECT e.position, e.attempt, e.relay, e.text, e.at FROM json_each(?1) j CROSS JOIN tenure_message_error e ON e.position = j.value ORDER BY e.position, e.n`
	bodiesOf    = `SELECT d.position, d.headers, d.payload FROM json_each(?1) j CROSS JOIN tenure_message_body d ON d.position = j.value`
	positionOf  = `SELECT position FROM tenure_message WHERE id = ?1`
)

// List implements [outbox.Office]. It reads without any lock, and all of its answer from one state of the file. What is delivered is found by its key, or in the order of
// positions, passing over others.
func (o *Outbox) List(ctx context.Context, req outbox.ListRequest) ([]outbox.Info, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	text := listText(&req)
	states := 0
	for _, s := range req.States {
		states |= 1 << s
	}
	found := []outbox.Info{}
	err := o.read(ctx, "list", func(b *mailBatch) error {
		positions, err := b.positions(text, req.After, req.Topic, req.Key, states, req.Limit)
		if err == nil {
			found, err = b.infos(positions, req.Bodies)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Where messages are found, for whoever looks for those that are after ?1, of topic ?2, of key ?3, and in one of the states ?4, or in any.
const (
	ofList      = ` AND position > ?1 AND (?2 = '' OR topic = ?2) AND (?3 = '' OR key = ?3) AND (?4 = 0 OR (?4 >> state) & 1)`
	fromPending = `SELECT position FROM tenure_message INDEXED BY tenure_message_due WHERE lead > 0 AND ordered = 0` + ofList +
		` UNION ALL SELECT position FROM tenure_message INDEXED BY tenure_message_chain WHERE ordered = 1 AND state = 1` + ofList
	fromDead = `SELECT position FROM tenure_message INDEXED BY tenure_message_over WHERE state > 1 AND state = 3` + ofList
	fromKey  = `SELECT position FROM tenure_message INDEXED BY tenure_message_key WHERE key <> '' AND key = ?3` + ofList
	fromAll  = `SELECT position FROM tenure_message WHERE position > 0` + ofList
	inOrder  = ` ORDER BY position LIMIT ?5`
)

// listText looks for what is pending or dead where there is nothing else.
func listText(req *outbox.ListRequest) string {
	switch {
	case req.Key != "":
		return fromKey + inOrder
	case len(req.States) == 0 || slices.Contains(req.States, outbox.Delivered):
		return fromAll + inOrder
	case !slices.Contains(req.States, outbox.Dead):
		return fromPending + inOrder
	case !slices.Contains(req.States, outbox.Pending):
		return fromDead + inOrder
	}
	return fromPending + ` UNION ALL ` + fromDead + inOrder
}

// Get implements [outbox.Office].
func (o *Outbox) Get(ctx context.Context, id fence.ID) (outbox.Info, error) {
	var found []outbox.Info
	err := o.read(ctx, "get", func(b *mailBatch) error {
		positions, err := b.positions(positionOf, id[:])
		if err == nil {
			found, err = b.infos(positions, true)
		}
		return err
	})
	switch {
	case err != nil:
		return outbox.Info{}, err
	case len(found) == 0:
		return outbox.Info{}, &outbox.NotFoundError{ID: id}
	}
	return found[0], nil
}

// infos tells of messages, in the order of their positions.
func (b *mailBatch) infos(positions []int64, bodies bool) ([]outbox.Info, error) {
	found := make([]outbox.Info, 0, len(positions))
	list, err := listOf(b.txWork, positions)
	if err != nil {
		return nil, err
	}
	err = b.each(func(rows *sql.Rows) error {
		i, err := b.info(rows)
		found = append(found, i)
		return err
	}, selectInfos, list)
	if err != nil {
		return nil, err
	}
	at := make(map[int64]int, len(found))
	for i := range found {
		at[found[i].Position] = i
	}
	err = b.each(func(rows *sql.Rows) error {
		var position, when int64
		var f outbox.Failure
		err := rows.Scan(&position, &f.Attempt, &f.Relay, &f.Text, &when)
		f.Age = b.since(when)
		i := &found[at[position]]
		i.Errors = append(i.Errors, f)
		return err
	}, errorsOf, list)
	if err != nil || !bodies {
		return found, err
	}
	err = b.each(func(rows *sql.Rows) error {
		var position int64
		var headers string
		var payload []byte
		err := rows.Scan(&position, &headers, &payload)
		i := &found[at[position]]
		if i.Payload = payload; err == nil {
			i.Headers, err = asHeaders(headers)
		}
		return err
	}, bodiesOf, list)
	return found, err
}

func (b *mailBatch) info(rows *sql.Rows) (i outbox.Info, err error) {
	var id []byte
	var open bool
	var at, appended int64
	if err := rows.Scan(&i.Position, &id, &i.Topic, &i.Key, &i.Ordered, (*int)(&i.State), &open, &at, &i.Attempts, &i.Relay, &i.Bytes, &appended); err != nil {
		return i, err
	}
	i.ID, i.Age = asID(id), b.since(appended)
	switch left := time.Duration(max(0, at-b.now)); {
	case i.State != outbox.Pending:
		i.Ended = b.since(at)
	case open:
		i.Claimed = left
	default:
		i.DueIn = left
	}
	return i, nil
}

func (b *mailBatch) since(at int64) time.Duration { return time.Duration(max(0, b.now-at)) }

// selectTopics counts by the indexes of what is pending and dead. The first pending message of a topic is its oldest.
const selectTopics = `SELECT t.topic, t.pending, t.dead, coalesce((SELECT m.appended FROM tenure_message m WHERE m.position = t.first), 0), p.topic IS NOT NULL, coalesce(p.reason, '') FROM (
		SELECT topic, sum(pending) AS pending, sum(dead) AS dead, min(first) AS first FROM (
		SELECT topic, count(*) AS pending, 0 AS dead, min(position) AS first FROM tenure_message INDEXED BY tenure_message_due WHERE lead > 0 AND lead = 1 AND topic > ?1 GROUP BY topic
		UNION ALL SELECT topic, count(*), 0, min(position) FROM tenure_message INDEXED BY tenure_message_chain WHERE ordered = 1 AND state = 1 AND topic > ?1 GROUP BY topic
		UNION ALL SELECT topic, 0, count(*), NULL FROM tenure_message INDEXED BY tenure_message_over WHERE state > 1 AND state = 3 AND topic > ?1 GROUP BY topic
		UNION ALL SELECT topic, 0, 0, NULL FROM tenure_paused WHERE topic > ?1 OR ?1 = '')
		GROUP BY topic) t LEFT JOIN tenure_paused p ON p.topic = t.topic ORDER BY t.topic LIMIT ?2`

// Topics implements [outbox.Office]. It reads without any lock, and counts what is pending and dead.
func (o *Outbox) Topics(ctx context.Context, after string) ([]outbox.TopicInfo, error) {
	if err := outbox.CheckAfter(after); err != nil {
		return nil, err
	}
	found := []outbox.TopicInfo{}
	err := o.read(ctx, "topics", func(b *mailBatch) error {
		return b.each(func(rows *sql.Rows) error {
			var t outbox.TopicInfo
			var appended int64
			err := rows.Scan(&t.Topic, &t.Pending, &t.Dead, &appended, &t.Paused, &t.Reason)
			if t.Pending > 0 {
				t.Oldest = b.since(appended)
			}
			found = append(found, t)
			return err
		}, selectTopics, after, outbox.MaxList)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Pause implements [outbox.Office].
func (o *Outbox) Pause(ctx context.Context, req outbox.PauseRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	err := o.write(ctx, "pause", 1, func(b *mailBatch) (err error) {
		if req.Paused {
			_, err = b.exec(`INSERT INTO tenure_paused (topic, reason) VALUES (?1, ?2) ON CONFLICT (topic) DO UPDATE SET reason = ?2`, req.Topic, req.Reason)
		} else {
			_, err = b.exec(`DELETE FROM tenure_paused WHERE topic = ?`, req.Topic)
		}
		return err
	})
	o.store.mail.wake()
	return err
}

// Retry implements [outbox.Office]. It looks without any lock, and then changes in transactions of a bounded size: an error says that some were not changed, and not that
// none was.
func (o *Outbox) Retry(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return o.revive(ctx, "retry", outbox.Dead, req)
}

// Replay implements [outbox.Office]. It looks without any lock, and then changes in transactions of a bounded size: an error says that some were not changed, and not that
// none was.
func (o *Outbox) Replay(ctx context.Context, req outbox.MoveRequest) (int, error) {
	return o.revive(ctx, "replay", outbox.Delivered, req)
}

// Where what is to be moved is found: in state ?1, of topic ?2 and key ?3, from ?4 to ?5, ended at ?6 or later, by the ids of ?8.
const (
	movable = ` AND state > 1 AND state = ?1 AND (?2 = '' OR topic = ?2) AND (?3 = '' OR key = ?3) AND position >= ?4 AND (?5 = 0 OR position <= ?5) AND at >= ?6 ORDER BY position LIMIT ?7`
	moveIDs = `SELECT position FROM (SELECT m.* FROM json_each(?8) j CROSS JOIN tenure_message m ON m.id = unhex(j.value)) WHERE position > 0` + movable
	moveKey = `SELECT position FROM tenure_message INDEXED BY tenure_message_key WHERE ?8 = ?8 AND key <> '' AND key = ?3` + movable
	moveNew = `SELECT position FROM tenure_message INDEXED BY tenure_message_over WHERE ?8 = ?8` + movable
	moveAll = `SELECT position FROM tenure_message NOT INDEXED WHERE ?8 = ?8` + movable
)

func moveText(from outbox.State, req *outbox.MoveRequest) string {
	switch {
	case len(req.IDs) > 0:
		return moveIDs
	case req.Key != "":
		return moveKey
	case from == outbox.Dead || req.Within > 0:
		return moveNew
	}
	return moveAll
}

func (o *Outbox) revive(ctx context.Context, op string, from outbox.State, req outbox.MoveRequest) (int, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	text := moveText(from, &req)
	ids := make([]string, len(req.IDs))
	for i, id := range req.IDs {
		ids[i] = hex.EncodeToString(id[:])
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var positions []int64
	err := o.read(ctx, op, func(b *mailBatch) error {
		list, err := listOf(b.txWork, ids)
		if err != nil {
			return err
		}
		var since int64
		if req.Within > 0 {
			since = b.now - int64(req.Within)
		}
		positions, err = b.positions(text, int(from), req.Topic, req.Key, req.From, req.To, since, req.Limit, list)
		return err
	})
	if err != nil {
		return 0, err
	}
	total := 0
	for some := range slices.Chunk(positions, moveAtOnce) {
		var n int
		err := o.write(ctx, op, len(some), func(b *mailBatch) (err error) {
			n, err = b.revive(some, from)
			return err
		})
		o.store.mail.wake()
		if err != nil {
			return 0, err // the writer may still be at work on it: n is not even read
		}
		total += n
	}
	return total, nil
}

// moveAtOnce is how many messages one transaction of Retry, Replay or Prune handles: every renewal of a lease waits for it.
const moveAtOnce = 512

const (
	selectChains = `SELECT DISTINCT m.topic, m.key FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value WHERE m.ordered = 1 AND m.state = ?2`
	reviveAll    = `UPDATE tenure_message SET state = 1, lead = 1 - ordered, open = 0, claim = x'', attempts = 0, lost = 0, at = ?3 WHERE position IN (SELECT value FROM json_each(?1)) AND state = ?2`
)

// revive makes those pending that are still in the state. The first pending message of a key is another one then, perhaps.
func (b *mailBatch) revive(positions []int64, from outbox.State) (int, error) {
	list, err := listOf(b.txWork, positions)
	if err != nil {
		return 0, err
	}
	var chains []chain
	err = b.each(func(rows *sql.Rows) error {
		var c chain
		err := rows.Scan(&c.topic, &c.key)
		chains = append(chains, c)
		return err
	}, selectChains, list, int(from))
	if err != nil {
		return 0, err
	}
	if err := b.unlead(chains); err != nil {
		return 0, err
	}
	n, err := b.exec(reviveAll, list, int(from), b.now)
	if err != nil {
		return 0, err
	}
	return int(n), b.lead(chains)
}

// selectForgotten are the messages that were delivered, or given up, the longest ago.
const selectForgotten = `SELECT position, size FROM (
		SELECT * FROM (SELECT position, size, at FROM tenure_message INDEXED BY tenure_message_over WHERE state > 1 AND state = 2 AND at <= ?1 ORDER BY at LIMIT ?3)
		UNION ALL SELECT * FROM (SELECT position, size, at FROM tenure_message INDEXED BY tenure_message_over WHERE state > 1 AND state = 3 AND at <= ?2 ORDER BY at LIMIT ?3))
		ORDER BY at, position LIMIT ?3`

// pruneBytes bounds the payloads that one transaction of Prune forgets.
const pruneBytes = 8 << 20

// Prune implements [outbox.Office]. It looks without any lock, and then forgets in transactions of a bounded size: an error says that some were not forgotten, and not that
// none was.
func (o *Outbox) Prune(ctx context.Context, req outbox.PruneRequest) (int, error) {
	if err := req.Check(); err != nil {
		return 0, err
	}
	var parts [][]int64
	err := o.read(ctx, "prune", func(b *mailBatch) error {
		dead := int64(-1)
		if req.Dead > 0 {
			dead = b.now - int64(req.Dead)
		}
		bytes := int64(0)
		return b.each(func(rows *sql.Rows) error {
			var position, size int64
			err := rows.Scan(&position, &size)
			last := len(parts) - 1
			if bytes += size; last < 0 || len(parts[last]) >= moveAtOnce || bytes > pruneBytes {
				parts, bytes = append(parts, nil), size
				last++
			}
			parts[last] = append(parts[last], position)
			return err
		}, selectForgotten, b.now-int64(req.Delivered), dead, req.Limit)
	})
	total := 0
	for _, part := range parts {
		var n int
		if err == nil {
			err = o.write(ctx, "prune", len(part), func(b *mailBatch) (err error) {
				n, err = b.forget(part, &req)
				return err
			})
		}
		if err != nil {
			return 0, err // the writer may still be at work on it: n is not even read
		}
		total += n
	}
	return total, err
}

const (
	stillForgotten = `SELECT m.position FROM json_each(?1) j CROSS JOIN tenure_message m ON m.position = j.value WHERE m.state = 2 AND m.at <= ?2 OR m.state = 3 AND m.at <= ?3`
	raiseFloor     = `UPDATE tenure_outbox SET floor = (SELECT max(position) FROM tenure_message) WHERE floor < (SELECT max(position) FROM tenure_message)`
)

// forget deletes those that are still over.
func (b *mailBatch) forget(positions []int64, req *outbox.PruneRequest) (int, error) {
	list, err := listOf(b.txWork, positions)
	if err != nil {
		return 0, err
	}
	dead := int64(-1)
	if req.Dead > 0 {
		dead = b.now - int64(req.Dead)
	}
	if positions, err = b.positions(stillForgotten, list, b.now-int64(req.Delivered), dead); err != nil || len(positions) == 0 {
		return 0, err
	}
	if list, err = listOf(b.txWork, positions); err != nil {
		return 0, err
	}
	if _, err := b.exec(raiseFloor); err != nil {
		return 0, err
	}
	for _, table := range []string{"tenure_message_body", "tenure_message_error", "tenure_message"} {
		if _, err := b.exec(`DELETE FROM `+table+` WHERE position IN (SELECT value FROM json_each(?1))`, list); err != nil {
			return 0, err
		}
	}
	return len(positions), nil
}
