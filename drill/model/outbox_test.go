package model

import (
	"strings"
	"testing"
	"time"
)

// soundMail is a round in which a relay was stopped before it had sent the first of two messages, and another one has sent both.
func soundMail() (MailFacts, MailWant) {
	f := MailFacts{
		Deliveries: []Delivery{
			{Round: 1, Seq: 2, Message: "second", ID: "2", Key: "k", Attempt: 1, Relay: "B", Accepted: true, At: 3 * time.Second},
			{Round: 1, Seq: 1, Message: "first", ID: "1", Key: "k", Attempt: 2, Relay: "B", Accepted: true, At: 2 * time.Second},
			{Round: 1, Seq: 3, Message: "first", ID: "1", Key: "k", Attempt: 1, Relay: "A", Accepted: true, At: 4 * time.Second},
			{Round: 1, Seq: 4, Message: "sick", ID: "3", Key: "s", Attempt: 1, Relay: "B", At: 5 * time.Second},
		},
		Effects: []MailEffect{{Round: 1, Message: "first"}, {Round: 1, Message: "second"}},
		States:  []MailState{{Round: 1, Key: "k", Value: 2}},
		Messages: []MailMessage{
			{Round: 1, Name: "first", ID: "1", Key: "k", Value: 1, State: "delivered", Attempts: 2, Relay: "B"},
			{Round: 1, Name: "second", ID: "2", Key: "k", Value: 2, State: "delivered", Attempts: 1, Relay: "B"},
			{Round: 1, Name: "sick", ID: "3", Key: "s", Value: 1, State: "dead", Attempts: 1, Errors: []string{"500"}},
		},
		Answers: []Answer{{Round: 1, Writer: "B", Element: "first", Token: 2, Accepted: true, Why: "published"}, {Round: 1, Writer: "A", Element: "first", Token: 1, Late: true, Why: "late"}},
		Events:  []Event{{Round: 1, Token: 1, What: Stopped}, {Round: 1, Token: 1, What: ClaimTill, At: time.Second}},
	}
	w := MailWant{Name: "v", Saw: []What{Stopped}, Late: []string{"A"}, Refused: map[string]int{"sick": 1}, Deliveries: []string{"B/2 first", "B/1 second", "A/1 first", "B/1 sick refused"},
		Messages: map[string]string{"first": "delivered 2", "second": "delivered", "sick": "dead 1"}, Errors: map[string]string{"sick": "500"}, Told: map[string]string{"A": "late"},
		Before: map[string]string{"second": "sick"}}
	return f, w
}

func judgedMail(f MailFacts, w MailWant) Verdict {
	return JudgeMail(f, MailDemand{Rounds: 1, Played: []PayRound{{Round: 1}}, Variants: []MailWant{w}})
}

func TestMailIsSound(t *testing.T) {
	t.Parallel()
	v := judgedMail(soundMail())
	m := v.Mail
	if !v.OK || m.Deliveries != 4 || m.Repeated != 1 || m.Refused != 1 || m.Effects != 2 || m.Dead != 1 || m.LateSent != 1 || m.LateTaken != 0 || m.DamagedRounds != 0 || m.Judged() != 1 {
		t.Errorf("%+v, %+v", v, m)
	}
}

// TestEachDamageOfMail: it is found whatever else is as it should be, and where it was promised the round is ok.
func TestEachDamageOfMail(t *testing.T) {
	t.Parallel()
	hurts := map[Damage]func(*MailFacts){
		EffectTwice: func(f *MailFacts) { f.Effects = append(f.Effects, f.Effects[0]) },
		MailLost:    func(f *MailFacts) { f.Deliveries[0].Accepted = false },
		OldOverNew:  func(f *MailFacts) { f.States[0].Value = 1 },
		AckedStale:  func(f *MailFacts) { f.Answers[1].Accepted = true },
		HeldUp: func(f *MailFacts) {
			f.Messages = append(f.Messages, MailMessage{Round: 1, Name: "well", ID: "4", Key: "w", Value: 1, State: "pending"})
		},
		PassedOver: func(f *MailFacts) { f.Deliveries[0].Seq = 0 },
	}
	for _, kind := range MailDamages() {
		f, w := soundMail()
		hurts[kind](&f)
		if v := judgedMail(f, w); v.OK || v.Mail.Damage[kind] != 1 || v.Mail.DamagedRounds != 1 || v.Mail.Variants[0].OK {
			t.Errorf("%s is not found: %+v, %+v", kind, v, v.Mail)
		}
		w.Damage = kind
		if v := judgedMail(f, w); !v.OK {
			t.Errorf("%s was promised: %+v", kind, v)
		}
		f, _ = soundMail()
		if v := judgedMail(f, w); v.OK {
			t.Errorf("%s was promised, and is not there: %+v", kind, v)
		}
	}
}

// TestMailThatIsNotAsPromised: without damage, a round must come to exactly what was promised, and what was to go wrong must have.
func TestMailThatIsNotAsPromised(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*MailFacts, *MailWant){
		"was refused 1 times":      func(_ *MailFacts, w *MailWant) { w.Refused["sick"] = 3 },
		"what arrived is":          func(_ *MailFacts, w *MailWant) { w.Deliveries = w.Deliveries[1:] },
		"has 3 messages of 2":      func(_ *MailFacts, w *MailWant) { delete(w.Messages, "second") },
		"first is delivered 2":     func(_ *MailFacts, w *MailWant) { w.Messages["first"] = "delivered 3" },
		"and has 0 effects":        func(f *MailFacts, _ *MailWant) { f.Effects = f.Effects[:1] },
		"the errors of sick":       func(f *MailFacts, _ *MailWant) { f.Messages[2].Errors = nil },
		"was published as 9":       func(f *MailFacts, _ *MailWant) { f.Deliveries[2].ID = "9" },
		"published again":          func(f *MailFacts, _ *MailWant) { f.Events[1].At = 10 * time.Second },
		"A was told":               func(f *MailFacts, _ *MailWant) { f.Answers[1].Why = "" },
		"second waited for sick":   func(f *MailFacts, _ *MailWant) { f.Deliveries[3].Seq = 0 },
		"first did not wait":       func(_ *MailFacts, w *MailWant) { w.After = map[string]string{"first": "sick"} },
		"0 rounds of 1 were":       func(f *MailFacts, w *MailWant) { f.States[0].Value, w.Name = 1, "void" },
		"it was given up, and did": func(f *MailFacts, w *MailWant) { f.States[0].Value, w.Name = 1, "void" },
	} {
		f, w := soundMail()
		change(&f, &w)
		v := JudgeMail(f, MailDemand{Rounds: 1, Played: []PayRound{{Round: 1, Void: w.Name == "void"}}, Variants: []MailWant{w}})
		if v.OK || !strings.Contains(strings.Join(v.Problems, "\n"), says) {
			t.Errorf("%q: %+v", says, v.Problems)
		}
	}
	for what, change := range map[string]func(*MailFacts){
		"nobody was stopped":               func(f *MailFacts) { f.Events = nil },
		"nothing was said late":            func(f *MailFacts) { f.Answers = f.Answers[:1] },
		"it did not reach the outbox":      func(f *MailFacts) { f.Answers[1].Unsent = true },
		"what was to be refused was taken": func(f *MailFacts) { f.Deliveries[3].Accepted = true },
	} {
		f, w := soundMail()
		change(&f)
		if v := judgedMail(f, w); v.OK || len(v.InvalidRounds) != 1 {
			t.Errorf("%s: %+v", what, v)
		}
	}
	if v := JudgeMail(MailFacts{}, MailDemand{}); v.OK {
		t.Error("nothing was demanded, and that is ok")
	}
}
