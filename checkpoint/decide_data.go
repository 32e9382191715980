package checkpoint

// dataLost tells whether the data directory of a generation is Known not to be the one
// that it was taken with. Such a one is no candidate: to start it may begin a second
// cluster, and to wait costs no more than there is lost already.
func (w World) dataLost(seq int64) bool {
	why, known := w.Data[seq].Value()
	return known && why != ""
}

// dataUnseen says why nobody knows what is in the data directory of a generation, ""
// if it needs none or somebody knows.
func (w World) dataUnseen(seq int64) string {
	data, needed := w.Data[seq]
	if _, known := data.Value(); !needed || known {
		return ""
	}
	return data.Why()
}

// seesData tells whether it is known of all generations what is in their directories.
func (w World) seesData() (why string, known bool) {
	record, _ := w.Record.Value()
	for _, g := range record.Generations {
		if why := w.dataUnseen(g.Seq); why != "" {
			return why, false
		}
	}
	return "", true
}
