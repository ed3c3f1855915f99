package drill

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// consumer takes messages on a socket, and has tables in which each delivery, and each effect, is noted: the resource of a drill about messages. Safe for concurrent use.
type consumer struct {
	c      *conductor
	once   once
	server *http.Server
	base   string // URL
	served chan error

	mu     sync.Mutex
	seq    int
	habits map[int]*habits // by round
}

// habits say how the consumer takes the messages of a round.
type habits struct {
	forgets bool // it keeps no inbox
	// answer is a status other than 200 for a delivery that is not taken, or statusKill; 0: it is taken. Under the consumer's lock.
	answer func(l letter) int
	kill   func(relay string) // the process that has sent it
}

// What the consumer answers to what it does not take.
const (
	statusSick    = http.StatusInternalServerError
	statusRefused = http.StatusUnprocessableEntity
	statusKill    = -1 // it answers nothing: whoever has sent this is killed
)

// consumerBound bounds what the consumer does for a delivery, and what a relay waits for it.
const consumerBound = 10 * time.Second

// openConsumer begins to listen.
func openConsumer(ctx context.Context, c *conductor) (*consumer, error) {
	co := &consumer{c: c, habits: map[int]*habits{}, served: make(chan error, 1)}
	var err error
	if co.once, err = onceOf(c.store); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("%w: the consumer: %w", ErrProcess, err)
	}
	co.base = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{round}", co.serve)
	co.server = &http.Server{Handler: mux, ReadHeaderTimeout: consumerBound}
	go func() { co.served <- co.server.Serve(listener) }()
	return co, nil
}

// close ends it; what it was told before is noted then.
func (co *consumer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBound)
	defer cancel()
	err := co.server.Shutdown(ctx)
	if served := <-co.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// serve takes one delivery.
func (co *consumer) serve(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), consumerBound) // who has sent it may be gone: it has arrived all the same
	defer cancel()
	var l letter
	round, err := strconv.Atoi(req.PathValue("round"))
	if err == nil {
		err = json.NewDecoder(http.MaxBytesReader(w, req.Body, maxLine)).Decode(&l)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h, status := co.decide(round, l)
	if err := co.take(ctx, round, l, h, status == 0); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	switch status {
	case 0:
	case statusKill:
		h.kill(l.Relay)
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, "this consumer does not take "+l.Name, status)
	}
}

// decide says what becomes of a delivery.
func (co *consumer) decide(round int, l letter) (*habits, int) {
	co.mu.Lock()
	defer co.mu.Unlock()
	h := co.habits[round]
	if h == nil {
		return &habits{}, statusSick
	}
	status := h.answer(l)
	return h, status
}

// take notes a delivery and, if it is accepted, has its effect in the same transaction: once, unless the consumer keeps no inbox.
func (co *consumer) take(ctx context.Context, round int, l letter, h *habits, accepted bool) error {
	res := co.c.res
	return res.inTx(ctx, func(tx *sql.Tx) error {
		effect := func(ctx context.Context) error {
			if _, err := tx.ExecContext(ctx, res.sql(`INSERT INTO [effect] (round, message) VALUES (?1, ?2)`), round, l.Name); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, res.sql(`INSERT INTO [state] (round, chain, content) VALUES (?1, ?2, ?3) ON CONFLICT (round, chain) DO UPDATE SET content = ?3`), round, l.Key, l.Value)
			return err
		}
		var err error
		switch {
		case !accepted:
		case h.forgets:
			err = effect(ctx)
		default:
			_, err = co.once(ctx, tx, topicOf(co.c.run, round), l.ID.String(), effect)
		}
		if err != nil {
			return err
		}
		co.mu.Lock() // the tables have one connection: the numbers are in the order of commits
		co.seq++
		seq := co.seq
		co.mu.Unlock()
		_, err = tx.ExecContext(ctx, res.sql(`INSERT INTO [delivery] (seq, round, message, id, chain, attempt, relay, accepted, at_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`),
			seq, round, l.Name, l.ID.String(), l.Key, l.Attempt, l.Relay, accepted, int64(co.c.now()))
		return err
	})
}

// arrived is how often a message of a round has arrived.
func (co *consumer) arrived(ctx context.Context, round int, message string) (n int, err error) {
	err = co.c.res.db.QueryRowContext(ctx, co.c.res.sql(`SELECT count(*) FROM [delivery] WHERE round = ?1 AND message = ?2`), round, message).Scan(&n)
	return n, err
}
