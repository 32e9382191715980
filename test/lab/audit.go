package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The audit log lies with the components' logs, so that it outlives the pods of
// the API servers and power cuts.
const auditLog, auditPolicy = "audit.log", "audit-policy.yaml"

var auditFlags = []string{"--audit-log-path=" + nodeLogs + "/" + auditLog, "--audit-policy-file=" + nodeLogs + "/" + auditPolicy}

// daemonUser is whom the API server takes the daemon for.
const daemonUser = "system:serviceaccount:kube-system:pod-checkpointer"

// auditRules have the log tell what the daemon asks for, and nothing else.
const auditRules = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + daemonUser + `"]
- level: None
`

// Request is one that the daemon made at the API server, either copy of it.
type Request struct {
	At          time.Time // when it came
	Verb        string
	Group       string // of the API
	Resource    string
	Subresource string
	Namespace   string
	Name        string // also of a watch for one name
	Code        int    // of the answer
}

// Audit is what the daemon has asked the API servers for since Up, in the order
// of the answers. A watch is there once it is open.
func (l *Lab) Audit() ([]Request, error) {
	file, err := os.Open(filepath.Join(l.logDir(), auditLog))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []Request
	seen := map[string]bool{} // by id: a watch is told of when it begins and when it ends
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return out, nil // the last line is not whole yet
		}
		var event struct {
			AuditID   string
			ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			Verb      string

			RequestReceivedTimestamp time.Time
			ResponseStatus           struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name(), err)
		}
		if seen[event.AuditID] {
			continue
		}
		seen[event.AuditID] = true
		o := event.ObjectRef
		out = append(out, Request{
			At: event.RequestReceivedTimestamp, Verb: event.Verb, Group: o.APIGroup, Resource: o.Resource,
			Subresource: o.Subresource, Namespace: o.Namespace, Name: o.Name, Code: event.ResponseStatus.Code,
		})
	}
}
