package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/data"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/snapshot"
	"github.com/pod-checkpointer/pod-checkpointer/checkpoint/store"
)

const (
	// dataRest is how often data directories are looked at while somebody serves.
	dataRest = 30 * time.Second
	dataAge  = dataRest + 10*time.Second
	// dataless is the same where no workload has one.
	dataless = time.Hour
	// lookLimit is how long a look may take, until its disk is said to hang.
	lookLimit = time.Second
)

// looked is what was seen of one data directory.
type looked struct {
	found data.Fingerprint
	err   error
}

// looks are those at data directories, each on a goroutine of its own: one at a disk that
// hangs holds up no other, nor the end of the daemon, and none is begun beside it.
type looks struct {
	look    func(dir string) (data.Fingerprint, error)
	hanging map[string]<-chan looked // by directory
}

// at looks at all of them until ctx ends. What an earlier look has seen meanwhile is too
// old to be told.
func (l *looks) at(ctx context.Context, dirs []string) map[string]looked {
	seen, begun := map[string]looked{}, map[string]<-chan looked{}
	for _, dir := range dirs {
		select {
		case <-l.hanging[dir]:
			delete(l.hanging, dir)
		default:
		}
		if l.hanging[dir] == nil {
			begun[dir] = l.begin(dir)
		} else {
			seen[dir] = looked{err: errHangs}
		}
	}
	for dir, answer := range begun {
		select {
		case seen[dir] = <-answer:
			continue
		case <-ctx.Done():
		}
		select {
		case seen[dir] = <-answer: // while another one was waited for
		default:
			seen[dir], l.hanging[dir] = looked{err: errHangs}, answer
		}
	}
	return seen
}

var errHangs = errors.New("its disk does not answer")

func (l *looks) begin(dir string) <-chan looked {
	answer := make(chan looked, 1)
	go func() {
		found, err := l.look(dir)
		answer <- looked{found, err}
	}()
	return answer
}

// newDataPoller looks at the wanted data directories, through the root directory of the
// host's first process: for that the daemon needs SYS_PTRACE, and no mount
// (proc_pid_root(5)).
func (h *Host) newDataPoller() *poller[map[string]looked] {
	l := &looks{hanging: map[string]<-chan looked{}, look: func(dir string) (data.Fingerprint, error) {
		return data.Look(filepath.Join(h.config.Proc, "1/root"), dir)
	}}
	p := newPoller(Clock(h), h.heard, lookLimit, dataRest, time.Second, func(ctx context.Context) (map[string]looked, error) {
		return l.at(ctx, h.wants.Load().Data), nil
	})
	every := p.every
	p.every = func(hurry bool) time.Duration {
		if len(h.wants.Load().Data) == 0 {
			return dataless
		}
		return every(hurry)
	}
	return p
}

// Data is what was seen last of a data directory that Want names.
func (h *Host) Data(dir string) Answer[data.Fingerprint] {
	answer := h.data.answer()
	seen, asked := answer.Value[dir]
	if !asked {
		return Answer[data.Fingerprint]{}
	}
	return Answer[data.Fingerprint]{Value: seen.found, Err: seen.err, At: answer.At}
}

// dataSettled tells whether all data directories have been looked at.
func (h *Host) dataSettled() bool {
	return !slices.ContainsFunc(h.wants.Load().Data, func(dir string) bool { return h.Data(dir).At == 0 })
}

// dataOf compares the data directories of the generations with what they held. Where
// nobody serves only a look counts that was taken since: who served may have gone
// because of what became of the directory.
func (o *observer) dataOf(w World, record store.Workload) map[int64]Observed[string] {
	serves, seen := w.Serves.Value()
	out := map[int64]Observed[string]{}
	for _, g := range record.Generations {
		needs := o.read(record.Key, g).Data
		if needs.Path == "" {
			continue
		}
		answer := o.sources.Data(needs.Path)
		look := current(w.Now, answer, dataAge, "data directory "+needs.Path)
		found, known := look.Value()
		switch {
		case !known:
			out[g.Seq] = Unknown[string]("%s", look.Why())
		case seen && serves.Role == Nobody && answer.At < serves.Since:
			out[g.Seq] = Unknown[string]("data directory %s: not looked at since nobody serves", needs.Path)
		default:
			why := found.Missing(needs.Etcd)
			if why != "" {
				why = needs.Path + ": " + why
			}
			out[g.Seq] = Known(why)
		}
	}
	return out
}

// dataFindings are about the generations that a start may use.
func (o *observer) dataFindings(w World) []string {
	var findings []string
	for _, g := range trusted(w, func(g store.Generation) bool { return w.Unusable[g.Seq] == "" }) {
		dir := o.read(w.Workload, g).Data.Path
		why, known := w.Data[g.Seq].Value()
		switch {
		case why != "":
			findings = append(findings, fmt.Sprintf("DataMissing: %s: generation %d does not start on that, since it may begin a second cluster; put the directory back, or mount it; a pod without %s is saved anew and starts on anything",
				why, g.Seq, snapshot.AnnotationData))
		case !known && dir != "" && o.sources.Data(dir).Err != nil:
			findings = append(findings, fmt.Sprintf("DataMissing: nobody knows what is there, and generation %d waits for that before it starts: %s", g.Seq, w.Data[g.Seq].Why()))
		}
	}
	return slices.Compact(findings)
}

// keepsData notes in the drafts of a workload which etcd member their data directories
// hold. Only who serves shows that it is the right one: else what the newest generation
// knows of the same directory stays. It says what a snapshot has to wait for.
func (o *observer) keepsData(w World, record store.Workload, p parents) (waits string) {
	for _, uid := range slices.Sorted(maps.Keys(p.data)) {
		dir := p.data[uid].Data.Path
		answer := o.sources.Data(dir)
		if answer.At == 0 && answer.Err == nil {
			waits = "data directory " + dir + ": has not been looked at yet"
			continue
		}
		var etcd string
		if len(record.Generations) > 0 {
			if held := o.read(record.Key, record.Generations[0]).Data; held.Path == dir {
				etcd = held.Etcd
			}
		}
		serves, _ := w.Serves.Value()
		found, _ := current(w.Now, answer, dataAge, "data").Value()
		if found.Etcd != "" && serves.Role != Nobody && serves.Role != Foreign && answer.At >= serves.Since {
			etcd = found.Etcd
		}
		p.hold(uid, etcd)
	}
	return waits
}

// dataDirs are those that the parents name.
func (p parents) dataDirs() []string {
	var dirs []string
	for _, taken := range p.data {
		dirs = append(dirs, taken.Data.Path)
	}
	return dirs
}

// hold has the draft of a parent say which member its data directory holds.
func (p parents) hold(uid, etcd string) {
	taken := p.data[uid]
	if taken.Data.Etcd == etcd {
		return
	}
	taken.HoldsEtcd(etcd)
	draft := p.drafts[uid]
	draft.Pod, _ = json.Marshal(taken.Pod) // as it could be before, but for an annotation
	p.drafts[uid] = draft
	maps.DeleteFunc(p.same, func(of saved, _ bool) bool { return of.uid == uid })
}
