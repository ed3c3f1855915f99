package outboxtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

func appendCases() []Case[Harness] {
	return []Case[Harness]{
		plain("the-same-message-again-is-not-written-again", sameAgain),
		plain("an-id-is-not-used-for-another-message", idForAnother),
		plain("an-append-is-all-or-none", allOrNone),
		plain("a-message-without-an-id-gets-one", idChosen),
		plain("what-is-appended-is-told-as-it-was", toldAsItWas),
		plain("messages-up-to-their-limits-are-kept", limitsKept),
		plain("many-messages-of-one-append-are-in-order", manyInOrder),
	}
}

func sameAgain(s *stage) {
	m := ordered("a", mail, "k")
	s.append(m)
	s.append(m)
	s.list(outbox.ListRequest{}, "a")
	s.take("x", "a")
	s.append(m)
	s.none("y")
	s.publish("x", "a")
	s.append(m)
	s.none("z")
	s.at("a", outbox.Delivered, 1)
	s.append(note("b", mail))
	s.take("w", "b")
	dead := s.verdict("b", outbox.Failed)
	dead.Dead = true
	s.settles("w", nil, dead)
	s.append(note("c", mail), note("b", mail), m)
	s.at("b", outbox.Dead, 1)
	s.list(outbox.ListRequest{}, "a", "b", "c")
	bare := outbox.Message{ID: idOf("d"), Topic: mail}
	s.append(bare)
	bare.Headers, bare.Payload = map[string]string{}, []byte{} // none is none
	s.append(bare)
	s.take("v", "c", "d")
}

func idForAnother(s *stage) {
	m := ordered("a", mail, "k")
	s.append(m)
	other := func(what string, spoil func(m *outbox.Message)) {
		o := m
		o.Headers = maps.Clone(m.Headers)
		spoil(&o)
		for i, messages := range [][]outbox.Message{{o}, {note("n", mail), o}, {o, note("n", mail)}} {
			err := s.refused(outbox.ErrMismatch, fmt.Sprintf("with another %s, %d", what, i), messages...)
			var e *outbox.MismatchError
			s.want(s.failed() || errors.As(err, &e) && *e == outbox.MismatchError{ID: m.ID, What: what}, "appending with another %s: %v", what, err)
		}
		s.gone("n")
	}
	all := func() {
		other("topic", func(m *outbox.Message) { m.Topic, m.Key, m.Ordered = bill, "l", false })
		other("topic", func(m *outbox.Message) { m.Topic = "Mail" })
		other("key", func(m *outbox.Message) { m.Key, m.Ordered, m.Payload = "l", false, nil })
		other("key", func(m *outbox.Message) { m.Key, m.Ordered = "", false })
		other("order", func(m *outbox.Message) { m.Ordered, m.Headers = false, nil })
		other("headers", func(m *outbox.Message) { m.Headers["name"], m.Payload = "b", []byte("b") })
		other("headers", func(m *outbox.Message) { m.Headers["more"] = "" })
		other("headers", func(m *outbox.Message) { m.Headers = nil })
		other("payload", func(m *outbox.Message) { m.Payload = append(slices.Clone(m.Payload), 0) })
		other("payload", func(m *outbox.Message) { m.Payload = nil })
	}
	all()
	s.take("x", "a")
	s.publish("x", "a")
	all()
	s.list(outbox.ListRequest{}, "a")
}

func allOrNone(s *stage) {
	s.append(notes("a")...)
	bad := note("c", mail)
	bad.Topic = ""
	_ = s.refused(outbox.ErrInvalid, "one without a topic", note("b", mail), bad)
	_ = s.refused(outbox.ErrMismatch, "one that is known as another", note("b", mail), note("a", bill), note("d", mail))
	_ = s.refused(outbox.ErrInvalid, "one id twice", note("b", mail), note("d", mail), note("b", mail))
	_ = s.refused(outbox.ErrInvalid, "a known id twice", note("a", mail), note("a", mail))
	s.gone("b")
	s.gone("d")
	s.take("x", "a")
}

func idChosen(s *stage) {
	if s.failed() {
		return
	}
	bare := outbox.Message{Topic: mail, Payload: []byte("p")}
	seen := map[fence.ID]bool{}
	for range 2 {
		ids, err := s.store.Append(s.ctx, []outbox.Message{bare, bare, bare})
		s.want(err == nil && len(ids) == 3, "appending three messages without ids: %v, %v", ids, err)
		for _, id := range ids {
			s.want(!id.IsZero() && !seen[id], "of ids %v is the zero one, or not new", ids)
			seen[id] = true
		}
	}
	got := s.claim(request("x"))
	s.want(s.failed() || len(got.Deliveries) == 6, "handed out: %+v; want six messages", got)
	for i := range got.Deliveries {
		s.want(seen[got.Deliveries[i].ID], "%v was handed out and not told", got.Deliveries[i].ID)
	}
}

// looksLike demands that a message is told as it was appended, by a claim, Get and List.
func (s *stage) looksLike(claim string, want ...outbox.Message) {
	got := s.claim(request(claim))
	s.want(s.failed() || len(got.Deliveries) == len(want), "%d messages were handed out; want %d", len(got.Deliveries), len(want))
	if s.failed() {
		return
	}
	all, err := s.store.List(s.ctx, outbox.ListRequest{After: got.Deliveries[0].Position - 1, Limit: outbox.MaxList, Bodies: true})
	s.want(err == nil && len(all) == len(want), "listing with bodies: %d, %v", len(all), err)
	for i := 0; i < len(want) && !s.failed(); i++ {
		one, err := s.store.Get(s.ctx, want[i].ID)
		s.want(err == nil && same(&one.Message, &want[i]) && one.Bytes == len(want[i].Payload), "looking at %+v: %+v, %v", want[i], one, err)
		s.want(same(&got.Deliveries[i].Message, &want[i]), "of %+v %+v was handed out", want[i], got.Deliveries[i])
		s.want(same(&all[i].Message, &want[i]) && all[i].Bytes == len(want[i].Payload), "of %+v %+v is listed", want[i], all[i])
	}
}

func toldAsItWas(s *stage) {
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	var all []outbox.Message
	for i, text := range []string{"ü", "e\u0301", "\u00e9", " a", "a ", "a'b", `a\b`, `a"b`, "a%", "a,{}b", "𝄞", "\u2028", "null", "\u200b"} {
		all = append(all, outbox.Message{
			ID: idOf(fmt.Sprint("t", i)), Topic: text, Key: text, Ordered: i%2 == 0, Payload: bytes[i:],
			Headers: map[string]string{text: text, "a": "line\nfeed\ttab\x01", "b": "", "A": "a", text + "2": "\u0000"[:0]},
		})
	}
	all = append(all, outbox.Message{ID: idOf("none"), Topic: "t"}, outbox.Message{ID: idOf("key"), Topic: "t", Key: "k"})
	s.append(all...)
	s.looksLike("x", all...)
}

func limitsKept(s *stage) {
	long := outbox.Message{
		ID: idOf("long"), Topic: strings.Repeat("ü", outbox.MaxTopic/2), Key: strings.Repeat("ß", outbox.MaxKey/2), Ordered: true, Payload: make([]byte, outbox.MaxPayload), Headers: map[string]string{},
	}
	for i := range outbox.MaxHeaders {
		long.Headers[fmt.Sprintf("h%03d", i)] = strings.Repeat("v", outbox.MaxHeaderBytes/outbox.MaxHeaders-4)
	}
	wide := note("wide", strings.Repeat("t", outbox.MaxTopic))
	wide.Headers = map[string]string{strings.Repeat("n", outbox.MaxHeaderName): strings.Repeat("v", outbox.MaxHeaderBytes-outbox.MaxHeaderName)}
	s.append(long, wide)
	s.looksLike("x", long, wide)
	var heavy []outbox.Message
	for i := range outbox.MaxAppendBytes / outbox.MaxPayload {
		m := note(fmt.Sprint("heavy", i), bill)
		m.Payload = slices.Repeat([]byte{byte(i)}, outbox.MaxPayload)
		heavy = append(heavy, m)
	}
	s.append(heavy...)
	got := s.claim(request("y"))
	s.want(s.failed() || len(got.Deliveries) == len(heavy), "of %d messages of %d bytes %d were handed out", len(heavy), outbox.MaxPayload, len(got.Deliveries))
}

func manyInOrder(s *stage) {
	var all []outbox.Message
	for i := range outbox.MaxAppend {
		all = append(all, ordered(fmt.Sprint("m", i), mail, "k"))
	}
	s.append(all...)
	got := s.claim(request("x"))
	s.want(s.failed() || slices.Equal(delivered(got), names(all)), "a thousand messages of a key were handed out as %q", delivered(got))
	s.settle("x", outbox.Published, names(all)...)
}
