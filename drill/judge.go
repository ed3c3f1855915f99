package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/tenure-go/tenure/drill/model"
)

// question is what the judge is asked: everything but the facts, which it reads itself.
type question struct {
	place                   // of the resource
	Run      string         `json:"run"`
	Rows     bool           `json:"rows,omitempty"` // its values are in a table that may be protected
	Story    bool           `json:"story"`
	Demand   model.Demand   `json:"demand"`
	Failover *model.Facts   `json:"failover,omitempty"` // of a failover: what was granted, and who believed what
	History  *model.History `json:"history,omitempty"`  // of a resource in memory, which no other process can read
	Payments *payQuestion   `json:"payments,omitempty"` // of a drill about payments

	Sales *model.SaleDemand `json:"sales,omitempty"` // of a drill about holds
	Mail  *model.MailDemand `json:"mail,omitempty"`  // of a drill about messages
}

// Judge is the whole program of the judging process: it reads a question from stdin, the resource's content, log and
// answers from the file, and writes its verdict to stdout. It is started by [Run].
func Judge(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var q question
	if err := receive(scanner(stdin, maxQuestion), &q); err != nil {
		return fmt.Errorf("%w: reading the question: %w", ErrProcess, err)
	}
	if q.Payments != nil {
		verdict, err := judgePayments(ctx, q)
		return errors.Join(err, (&lines{to: stdout}).send(verdict))
	}
	if q.Sales != nil {
		verdict, err := judgeSales(ctx, q)
		return errors.Join(err, (&lines{to: stdout}).send(verdict))
	}
	if q.Mail != nil {
		verdict, err := judgeMail(ctx, q)
		return errors.Join(err, (&lines{to: stdout}).send(verdict))
	}
	if q.History == nil {
		res, err := openResource(q.place, q.Run)
		if err != nil {
			return err
		}
		defer func() { _ = res.close() }() // it only read
		if q.Rows {
			if err := res.usingRows(q.place); err != nil {
				return err
			}
		}
		history, err := res.history(ctx)
		if err != nil {
			return fmt.Errorf("reading the resource: %w", err)
		}
		q.History = &history
	}
	var verdict model.Verdict
	switch {
	case q.Story:
		verdict = model.JudgeStory(*q.History, q.Demand.Rounds, q.Demand.Fenced)
	case q.Failover != nil:
		verdict = model.JudgeFailover(*q.History, *q.Failover, q.Demand)
	default:
		verdict = model.Judge(*q.History, q.Demand)
	}
	return (&lines{to: stdout}).send(verdict)
}

// maxQuestion bounds a question with its history: 1000 rounds of the story in memory.
const maxQuestion = 16 << 20

// askJudge starts the judge and returns its verdict.
func askJudge(ctx context.Context, self []string, q question) (model.Verdict, error) {
	var v model.Verdict
	text, err := json.Marshal(q)
	if err != nil {
		return v, err
	}
	says := new(tail)
	cmd := exec.CommandContext(ctx, self[0], append(self[1:len(self):len(self)], "judge")...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(append(text, '\n')), says
	apart(cmd)
	out, err := cmd.Output()
	if err != nil {
		return v, fmt.Errorf("%w: the judge: %w%s", ErrProcess, err, says.text())
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("%w: the judge's verdict %q: %w", ErrProcess, out, err)
	}
	return v, nil
}
