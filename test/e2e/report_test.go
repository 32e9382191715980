//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// report is what an operator would look at first, after a scenario failed.
func (s *scene) report(out io.Writer) {
	now := s.eyes.sight()
	fmt.Fprintf(out, "\n--- what is seen\n%s\n", now)

	fmt.Fprintln(out, "--- /status")
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	_ = encoder.Encode(now.status) // to a standard stream

	fmt.Fprintln(out, "--- lock table")
	table, err := os.ReadFile("/proc/locks")
	fmt.Fprintf(out, "%s%v\nholder %+v\nwaiters %+v\n", table, err, now.serves, now.waiters)

	fmt.Fprintln(out, "--- containers")
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, pod := range now.pods {
		for i, box := range pod.Sandboxes {
			fmt.Fprintf(columns, "%s/%s\t%s\t%s\tsandbox %d\tready %t\n", pod.Namespace, pod.Name, pod.UID, pod.Source, i, box.Ready)
		}
		for _, c := range pod.Containers {
			fmt.Fprintf(columns, "\t%.13s\t%s\tattempt %d\t%s\n", c.ID, c.Name, c.Attempt, c.State)
		}
	}
	_ = columns.Flush() // to a standard stream

	fmt.Fprintln(out, "--- the daemon's log")
	logs, _ := filepath.Glob(filepath.Join(s.path("/var/log/pods"), "kube-system_pod-checkpointer-*/*/*.log"))
	for _, log := range logs {
		data, err := os.ReadFile(log)
		lines := strings.Split(string(data), "\n")
		fmt.Fprintf(out, "%s %v\n%s\n", log, err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}
