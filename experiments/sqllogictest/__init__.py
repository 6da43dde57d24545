"""DataFusion's own tests of its SQL, by the stages of mrflight's plans."""
