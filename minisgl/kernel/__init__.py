"""Operations on tensors that a device might do in one kernel."""
