//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/store/sqlite"
)

// mailWorld has messages in every state.
func mailWorld(t *testing.T) (*world, messages) {
	t.Helper()
	w := newWorld(t)
	w.ok("migrate")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: strings.TrimPrefix(w.store, "sqlite:")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	makeMessages(t, s.Outbox())
	return w, s.Outbox()
}

// messageNo is the id of the message with that number.
func messageNo(n int) fence.ID { return fence.ID{6: 0x70, 8: 0x80, 15: byte(n)} }

// makeMessages makes 1 delivered, 2 dead, 3 pending after a failure, 4 claimed, all of "mail", and 5 and 6 pending, ordered, of "bill".
func makeMessages(t *testing.T, m messages) {
	t.Helper()
	var all []outbox.Message
	for n := 1; n <= 6; n++ {
		one := outbox.Message{ID: messageNo(n), Topic: "mail", Payload: fmt.Appendf(nil, `{"n": %d}`, n), Headers: map[string]string{"secret": fmt.Sprint("header-", n)}}
		if n > 4 {
			one.Topic, one.Key, one.Ordered = "bill", "k", true
		}
		all = append(all, one)
	}
	if _, err := m.Append(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	got, err := m.Claim(t.Context(), outbox.ClaimRequest{Claim: messageNo(99), Relay: "relay-7", Topics: []string{"mail"}, Limit: 10, Bytes: 1 << 20, TTL: time.Hour, MaxAttempts: 5})
	if err != nil || len(got.Deliveries) != 4 {
		t.Fatal(got, err)
	}
	_, err = m.Settle(t.Context(), outbox.SettleRequest{Claim: messageNo(99), Relay: "relay-7", Verdicts: []outbox.Verdict{
		{Position: got.Deliveries[0].Position, Outcome: outbox.Published},
		{Position: got.Deliveries[1].Position, Outcome: outbox.Failed, Error: "no such mailbox", Dead: true},
		{Position: got.Deliveries[2].Position, Outcome: outbox.Failed, Error: "try later", RetryIn: time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// numbersOf are the messages of a listing, by the last digit of their ids.
func numbersOf(t *testing.T, text string) (numbers string, more bool) {
	t.Helper()
	var out struct {
		Messages []messageJSON `json:"messages"`
		More     bool          `json:"more"`
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err, text)
	}
	for _, one := range out.Messages {
		numbers += one.ID[len(one.ID)-1:]
	}
	return numbers, out.More
}

// TestOutboxList: each filter, pages, and no bodies that were not asked for.
func TestOutboxList(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t)
	for args, want := range map[string]string{
		"":                                "123456",
		"--state dead":                    "2",
		"--state pending":                 "3456",
		"--state delivered,dead":          "12",
		"--state pending --state dead":    "23456",
		"--topic mail":                    "1234",
		"--topic bill --key k":            "56",
		"--key k --state delivered":       "",
		"--topic mail --state pending":    "34",
		"--limit 2":                       "12",
		"--after 4":                       "56",
		"--limit 6":                       "123456",
		"--limit 2 --after 1 --topic no":  "",
		"--topic mail --key k --limit 10": "",
	} {
		got, more := numbersOf(t, w.ok(append([]string{"outbox", "ls", "--json"}, strings.Fields(args)...)...))
		if got != want || more != (args == "--limit 2") {
			t.Errorf("%q: %s, more %v; want %s", args, got, more, want)
		}
	}
	text := w.ok("outbox", "ls")
	for _, want := range []string{"POSITION  ", "no such mailbox", "k (ordered)", "claimed ", "in ", "due"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := w.do("outbox", "ls", "--limit", "2"); !strings.Contains(got.last(), "--after 2") {
		t.Errorf("no way on: %s", got.last())
	}
	if strings.Contains(w.ok("outbox", "ls", "--json"), "header-1") || !strings.Contains(w.ok("outbox", "ls", "--json", "--bodies"), "header-1") {
		t.Error("bodies are not what was asked for")
	}
	w.fails(exitUsage, "want one of pending", "outbox", "ls", "--state", "sent")
	w.fails(exitUsage, "--limit 0", "outbox", "ls", "--limit", "0")
	w.fails(exitUsage, "--json", "outbox", "ls", "--bodies")
	w.fails(exitUsage, "after", "outbox", "ls", "--after", "-1")
}

func TestOutboxShow(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t)
	for n, want := range map[int]string{1: "delivered, ", 2: "attempt 1, ", 3: "pending, in ", 4: "relay-7", 5: "k (ordered)"} {
		if got := w.ok("outbox", "show", messageNo(n).String()); !strings.Contains(got, want) || strings.Contains(got, "header-") {
			t.Errorf("message %d: %s", n, got)
		}
	}
	if got := w.ok("outbox", "show", messageNo(2).String(), "--bodies"); !strings.Contains(got, "secret: header-2") || !strings.Contains(got, `{"n": 2}`) {
		t.Errorf("bodies: %s", got)
	}
	if got := w.ok("outbox", "show", messageNo(2).String(), "--json", "--bodies"); !strings.Contains(got, `"n": 2`) || !strings.Contains(got, `"error": "no such mailbox"`) || !strings.Contains(got, `"ended_ago_ms": `) {
		t.Errorf("JSON: %s", got)
	}
	w.fails(exitFailed, "no message", "outbox", "show", messageNo(9).String())
	w.fails(exitUsage, "message \"x\"", "outbox", "show", "x")
}

// TestOutboxPause: topics, apart from each other and from all.
func TestOutboxPause(t *testing.T) {
	t.Parallel()
	w, m := mailWorld(t)
	some := func(n byte) int {
		t.Helper()
		got, err := m.Claim(t.Context(), outbox.ClaimRequest{Claim: fence.ID{n}, Limit: 10, Bytes: 1 << 20, TTL: time.Hour, MaxAttempts: 5})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Deliveries)
	}
	if got := w.ok("outbox", "pause", "bill", "--reason", "moved"); got != "bill: paused\n" {
		t.Error(got)
	}
	w.ok("outbox", "pause", "--all", "--json")
	for _, want := range []string{"*      0        0     -", "bill   2        0     ", "yes: moved", "mail   2        1     "} {
		if got := w.ok("outbox", "topics"); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := w.ok("outbox", "resume", "bill"); got != "bill: not paused\n" || some(1) != 0 {
		t.Errorf("all are paused: %s", got)
	}
	if got := w.ok("outbox", "resume", "--all"); got != "every topic: not paused\n" || some(2) != 2 {
		t.Errorf("nothing is paused: %s", got)
	}
	if got := w.ok("outbox", "topics", "--json"); !strings.Contains(got, `"dead": 1`) || strings.Contains(got, `"paused": true`) {
		t.Error(got)
	}
	for _, args := range [][]string{{"pause"}, {"resume"}, {"pause", "x", "--all"}, {"resume", ""}, {"pause", "a\nb"}} {
		w.fails(exitUsage, "", append([]string{"outbox"}, args...)...)
	}
}

// TestOutboxRetryAndReplay: what is named, and nothing twice.
func TestOutboxRetryAndReplay(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t)
	for _, args := range [][]string{{}, {"--all", "--topic", "mail"}, {messageNo(2).String(), "--all"}, {"x"}, {"--all", "--limit", "-1"}, {"--from", "3", "--to", "2"}} {
		w.fails(exitUsage, "", append([]string{"outbox", "retry"}, args...)...)
	}
	for _, args := range []string{"--topic bill", "--from 3", "--to 1", messageNo(1).String(), "--key k"} {
		if got := w.ok(append([]string{"outbox", "retry"}, strings.Fields(args)...)...); got != "0 messages are pending again\n" {
			t.Errorf("%s: %s", args, got)
		}
	}
	if got := w.ok("outbox", "retry", "--topic", "mail", "--within", "1h", "--json"); !strings.Contains(got, `"retried": 1`) {
		t.Error(got)
	}
	if got := w.ok("outbox", "show", messageNo(2).String(), "--json"); !strings.Contains(got, `"attempts": 0`) || !strings.Contains(got, "no such mailbox") {
		t.Errorf("a retried message: %s", got)
	}
	w.fails(exitUsage, "add --yes", "outbox", "replay", "--all")
	if got, _ := numbersOf(t, w.ok("outbox", "ls", "--state", "delivered", "--json")); got != "1" {
		t.Errorf("without --yes: %s", got)
	}
	if got := w.ok("outbox", "replay", "--from", "1", "--to", "1", "--limit", "5", "--yes", "--json"); !strings.Contains(got, `"replayed": 1`) {
		t.Error(got)
	}
	if got, _ := numbersOf(t, w.ok("outbox", "ls", "--state", "pending", "--json")); got != "123456" {
		t.Errorf("pending in the end: %s", got)
	}
}

// TestOutboxLimitOfIDs: a limit counts where messages are named, too.
func TestOutboxLimitOfIDs(t *testing.T) {
	t.Parallel()
	w, m := mailWorld(t)
	got, err := m.Claim(t.Context(), outbox.ClaimRequest{Claim: messageNo(98), Topics: []string{"bill"}, Limit: 10, Bytes: 1 << 20, TTL: time.Hour, MaxAttempts: 5})
	if err != nil || len(got.Deliveries) != 2 {
		t.Fatal(got, err)
	}
	var over []outbox.Verdict
	for _, d := range got.Deliveries {
		over = append(over, outbox.Verdict{Position: d.Position, Outcome: outbox.Published})
	}
	if _, err := m.Settle(t.Context(), outbox.SettleRequest{Claim: messageNo(98), Verdicts: over}); err != nil {
		t.Fatal(err)
	}
	if got := w.ok("outbox", "replay", messageNo(5).String(), messageNo(6).String(), "--limit", "1", "--yes", "--json"); !strings.Contains(got, `"replayed": 1`) {
		t.Error(got)
	}
}

// TestOutboxAppendAndPrune: bytes as they are, an id once, and nothing that is young is forgotten.
func TestOutboxAppendAndPrune(t *testing.T) {
	t.Parallel()
	w, m := mailWorld(t)
	id := messageNo(7).String()
	for range 2 {
		if got := w.ok("outbox", "append", "mail", "--id", id, "--payload", "{ }", "--header", "a=b=c", "--key", "k"); got != id+"\n" {
			t.Error(got)
		}
	}
	one, err := m.Get(t.Context(), messageNo(7))
	if err != nil || string(one.Payload) != "{ }" || one.Headers["a"] != "b=c" || one.Key != "k" || one.Ordered {
		t.Errorf("%+v, %v", one, err)
	}
	w.fails(exitFailed, "with another payload", "outbox", "append", "mail", "--id", id, "--payload", "{}", "--header", "a=b=c", "--key", "k")
	if got := w.ok("outbox", "append", "mail", "--json"); !strings.Contains(got, `"id": "0`) {
		t.Error(got)
	}
	for _, args := range [][]string{{"mail", "--id", "x"}, {"mail", "--header", "x"}, {"mail", "--ordered"}, {"mail", "--payload", "a", "--payload-file", "b"}, {"mail", "--payload-file", "/none"}, {""}} {
		w.fails(exitUsage, "", append([]string{"outbox", "append"}, args...)...)
	}
	if got := w.ok("outbox", "prune", "--delivered", "1m", "--dead", "1m"); got != "0 messages forgotten\n" {
		t.Error(got)
	}
	for _, args := range [][]string{{}, {"--delivered", "1s"}, {"--delivered", "1h", "--dead", "0s"}} {
		w.fails(exitUsage, "", append([]string{"outbox", "prune"}, args...)...)
	}
}

// TestPostgresOutbox: the same commands on PostgreSQL.
func TestPostgresOutbox(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	l, err := environment{getenv: func(string) string { return "" }}.locate(w.store)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), l, openOptions{made: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	m, err := messagesOf(s)
	if err != nil {
		t.Fatal(err)
	}
	makeMessages(t, m)
	if got, _ := numbersOf(t, w.ok("outbox", "ls", "--state", "pending,dead", "--json")); got != "23456" {
		t.Errorf("ls: %s", got)
	}
	if got := w.ok("outbox", "show", messageNo(2).String(), "--bodies"); !strings.Contains(got, "no such mailbox") || !strings.Contains(got, "header-2") {
		t.Errorf("show: %s", got)
	}
	w.ok("outbox", "pause", "bill", "--reason", "moved")
	if got := w.ok("outbox", "topics"); !strings.Contains(got, "yes: moved") {
		t.Errorf("topics: %s", got)
	}
	w.ok("outbox", "resume", "bill")
	if got := w.ok("outbox", "retry", "--all"); got != "1 messages are pending again\n" {
		t.Errorf("retry: %s", got)
	}
	if got := w.ok("outbox", "replay", messageNo(1).String(), "--yes"); got != "1 messages are pending again\n" {
		t.Errorf("replay: %s", got)
	}
	if got := w.ok("outbox", "append", "mail", "--payload", "x", "--id", messageNo(7).String()); got != messageNo(7).String()+"\n" {
		t.Errorf("append: %s", got)
	}
	if got := w.ok("outbox", "prune", "--delivered", "1m"); got != "0 messages forgotten\n" {
		t.Errorf("prune: %s", got)
	}
}

// TestOutboxWithoutStore: commands that look make no store.
func TestOutboxWithoutStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{{"ls"}, {"topics"}, {"show", messageNo(1).String()}, {"retry", "--all"}, {"replay", "--all", "--yes"}, {"pause", "x"}, {"resume", "x"}, {"prune", "--delivered", "1h"}, {"append", "x"}} {
		w.fails(exitNoStore, "there is no store", append([]string{"outbox"}, args...)...)
	}
	if files, err := os.ReadDir(w.dir); err != nil || len(files) != 0 {
		t.Errorf("made: %v, %v", files, err)
	}
}
